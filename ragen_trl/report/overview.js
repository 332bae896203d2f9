// What each run reached, what is missing, and all curves.

function drawOverview(data) {
  const section = document.getElementById("overview");
  const rows = data.runs.flatMap((run, index) => run.summary.map((row) => summaryRow(run, index, row)));
  if (rows.length) {
    section.append(table(
      ["Run", "Environment", "#Updates", "#Last success", "#95 % interval", "#Best", "#Random play", "#Optimum", "Collapse monitor"],
      rows));
  }
  for (const run of data.runs) {
    for (const event of run.collapse) {
      section.append(make("p", { class: "note" },
        `${run.name}, update ${event.step}: ${event.message ?? event.signal ?? "an alarm"} (${event.action ?? "?"})`));
    }
  }
  const notes = data.runs.flatMap((run) => run.notes.map((note) => make("li", { class: "quiet" }, `${run.name}: ${note}`)));
  if (notes.length) {
    section.append(make("details", { id: "notes" },
      make("summary", { class: "quiet" }, `What is missing or left out (${notes.length})`), make("ul", {}, ...notes)));
  }
}

function summaryRow(run, index, row) {
  const cell = (text) => make("td", { class: "number" }, text);
  const interval = row.last.low === undefined ? "–" : `${percent(row.last.low)} to ${percent(row.last.high)}`;
  const first = run.collapse[0];
  return make("tr", {},
    make("td", {}, swatch(index), run.name),
    make("td", {}, row.env),
    cell(String(row.num_updates)),
    cell(percent(row.last.y) + (row.is_evaluated ? "" : " (training)")),
    cell(interval),
    cell(`${percent(row.best.y)} at ${row.best.step}`),
    cell(percent(row.random_play)),
    cell(percent(row.optimum)),
    make("td", {}, first ? `${first.signal ?? "alarm"} at ${first.step}` : "silent or off"));
}

function legendEntry(className, colour, label) {
  const line = makeSvg("path", { class: className, d: "M0 4H26", stroke: colour });
  return make("span", {}, makeSvg("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" }, line), label);
}

function drawCurves(data) {
  const section = document.getElementById("curves");
  const visible = new Set(data.runs.keys());
  const xSpan = spanOf(data.panels.flatMap((panel) => panel.lines.flatMap((line) => [line.x[0], line.x[line.x.length - 1]])));
  const main = make("div", { class: "panels", "data-panels": "main" });
  const further = make("div", { class: "panels" });
  const details = make("details", {}, make("summary", {}, "Everything else in the log"), further);
  const draw = () => {
    const isDrawn = (panel) => panel.is_main || details.open;
    const figures = data.panels.filter(isDrawn).map((panel) => [panel, drawPanel(panel, data.runs, visible, xSpan)]);
    main.replaceChildren(...figures.filter(([panel]) => panel.is_main).map(([, figure]) => figure));
    further.replaceChildren(...figures.filter(([panel]) => !panel.is_main).map(([, figure]) => figure));
  };
  details.addEventListener("toggle", draw);
  if (data.runs.length > 1) section.append(runSwitches(data.runs, visible, draw));
  section.append(
    make("p", { class: "legend" },
      legendEntry("curve behind", "currentColor", "training"),
      legendEntry("curve", "currentColor", "evaluation, with 95 % interval"),
      legendEntry("rule random_play", null, "random play"),
      legendEntry("rule optimum", null, "optimum"),
      legendEntry("mark", "currentColor", "collapse monitor"),
      make("span", {}, "x axis: updates")),
    main);
  if (data.panels.some((panel) => !panel.is_main)) section.append(details);
  if (!data.panels.length) section.append(make("p", { class: "quiet" }, "There is no log to draw."));
  draw();
}

function runSwitches(runs, visible, onChange) {
  const boxes = runs.map((run, index) => {
    const box = make("input", { type: "checkbox" });
    box.checked = true;
    box.addEventListener("change", () => {
      if (box.checked) visible.add(index);
      else visible.delete(index);
      onChange();
    });
    return make("label", { class: "inline" }, box, swatch(index), run.name);
  });
  return make("div", { class: "controls" }, ...boxes);
}
