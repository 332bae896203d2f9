// Every group of a rollout by the spread of its returns, and whether the filter kept it.

const FILTER_WIDTH = 1160;

function drawFilter(data, showEpisodes) {
  const section = document.getElementById("filter");
  const withGroups = [...data.runs.keys()].filter((index) => data.runs[index].groups.length);
  if (!withGroups.length) {
    section.append(make("p", { class: "quiet" }, "There are no rollouts to show."));
    return;
  }
  const body = make("div");
  const draw = (index) => body.replaceChildren(...filterOfRun(data.runs[index], (where) => showEpisodes(index, where)));
  if (withGroups.length > 1) {
    const options = withGroups.map((index) => [index, data.runs[index].name]);
    section.append(make("div", { class: "controls" },
      labelled("Run", choice(options, withGroups[0], (value) => draw(Number(value))))));
  }
  section.append(body);
  draw(withGroups[0]);
}

function filterOfRun(run, showEpisodes) {
  const byFile = new Map();
  for (const group of run.groups) byFile.set(group.file, [...(byFile.get(group.file) ?? []), group]);
  const rollouts = [...byFile.keys()];
  const iteration = (file) => run.files[file].iteration ?? file;
  const slider = make("input", { type: "range", min: 0, max: rollouts.length - 1, value: rollouts.length - 1, "aria-label": "Rollout" });
  const list = make("div");
  const { svg, cursor, scale } = drawGroups(run, iteration, rollouts);
  const caption = make("span");
  const show = () => {
    const file = rollouts[slider.value];
    const x = scale.x(iteration(file));
    for (const name of ["x1", "x2"]) cursor.setAttribute(name, x);
    const groups = byFile.get(file);
    const kept = groups.filter((group) => group.num_kept > 0).length;
    caption.textContent = `Rollout ${iteration(file)}, ${beforeUpdate(run.files[file])}: ${kept} of ${groups.length} groups kept`;
    list.replaceChildren(groupTable(groups, (group) => showEpisodes({ file, group })));
  };
  slider.addEventListener("input", show);
  svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect();
    slider.value = nearest(rollouts.map(iteration), scale.step(((event.clientX - box.left) / box.width) * scale.width));
    show();
  });
  show();
  return [
    make("div", { class: "card" },
      make("p", { class: "legend" },
        make("span", {}, "one dot per group: the std of its returns, by rollout"),
        make("span", {}, dot("kept"), "kept, wholly or in part"), make("span", {}, dot("dropped"), "dropped")),
      svg, make("div", { class: "controls" }, slider, caption)),
    list,
  ];
}

function dot(kind) {
  return makeSvg("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" }, makeSvg("path", { class: `dots ${kind}`, d: "M14 4h0.01" }));
}

function drawGroups(run, iteration, rollouts) {
  const xSpan = spanOf(rollouts.map(iteration));
  const drawn = run.groups.filter((group) => group.std !== null);
  const [, most] = spanOf(drawn.map((group) => group.std));
  const ySpan = [0, Math.max(1.06 * most, 1e-6)];
  const scale = makeScale(FILTER_WIDTH, [xSpan[0] - 0.5, xSpan[1] + 0.5], ySpan);
  const svg = makeSvg("svg", { viewBox: `0 0 ${FILTER_WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": "Std of the returns of every group, by rollout; the slider below chooses a rollout" });
  drawAxes(svg, scale, xSpan, ySpan, false);
  const cursor = makeSvg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
  svg.append(cursor);
  for (const kind of ["dropped", "kept"]) {
    const own = drawn.filter((group) => (group.num_kept > 0) === (kind === "kept"));
    const d = own.map((group) => `M${scale.x(iteration(group.file)).toFixed(1)} ${scale.y(group.std).toFixed(1)}h0.01`);
    svg.append(makeSvg("path", { class: `dots ${kind}`, d: d.join("") }));
  }
  return { svg, cursor, scale };
}

function groupTable(groups, onEpisodes) {
  const widest = Math.max(...groups.map((group) => group.std), 1e-9);
  const rows = [...groups].sort((a, b) => b.std - a.std).map((group) => {
    const bar = make("span", { class: group.num_kept ? "bar kept" : "bar" });
    bar.style.width = `${(140 * group.std) / widest}px`;
    const cell = (text) => make("td", { class: "number" }, text);
    return make("tr", {},
      cell(String(group.group)), make("td", {}, group.env), cell(String(group.seed)),
      make("td", {}, bar), cell(number(group.std)), cell(number(group.score)), cell(number(group.mean)),
      cell(`${group.num_solved} of ${group.size}`), cell(`${group.num_kept} of ${group.size}`),
      make("td", {}, button("episodes", { class: "link", "aria-label": `episodes of group ${group.group}` }, () => onEpisodes(group.group))));
  });
  return table(["#Group", "Environment", "#Seed", "Std of returns", "#", "#Filter's score", "#Mean return", "#Solved", "#Kept", ""], rows);
}
