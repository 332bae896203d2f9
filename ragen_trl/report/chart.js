// One panel: axes, level lines, curves with intervals, collapse marks, and a read-out.

const WIDTH = 400, HEIGHT = 200, LEFT = 46, RIGHT = 8, TOP = 10, BOTTOM = 24;

function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  // Counted from the first one: far from 0, adding 1 to its number may change nothing.
  const first = Math.ceil(low / step - 1e-9);
  const numbers = Array.from({ length: Math.ceil(count) + 2 }, (_, k) => first + k);
  return numbers.map((k) => k * step).filter((value) => Number.isFinite(value) && value <= high + step * 1e-9);
}

function spanOf(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

function yRange(panel, lines) {
  if (panel.is_share) return [0, 1];
  let [low, high] = spanOf(lines.flatMap((line) => line.y));
  if (low > 0 && low < 0.5 * high) low = 0;
  const margin = 0.04 * (high - low);
  return [low === 0 ? 0 : low - margin, high + margin];
}

function path(xs, ys, scale) {
  return xs.map((x, i) => `${i ? "L" : "M"}${scale.x(x).toFixed(1)} ${scale.y(ys[i]).toFixed(1)}`).join("");
}

function drawAxes(svg, scale, [xLow, xHigh], [yLow, yHigh], isShare) {
  for (const y of ticks(yLow, yHigh, 4)) {
    svg.append(
      makeSvg("line", { class: "grid", x1: LEFT, x2: scale.width - RIGHT, y1: scale.y(y), y2: scale.y(y) }),
      makeSvg("text", { x: LEFT - 6, y: scale.y(y) + 4, "text-anchor": "end" },
        isShare ? `${Math.round(100 * y)} %` : number(y)));
  }
  for (const x of ticks(xLow, xHigh, scale.width / 80).filter(Number.isInteger)) {
    svg.append(makeSvg("text", { x: scale.x(x), y: HEIGHT - 6, "text-anchor": "middle" }, String(x)));
  }
  svg.append(makeSvg("line", { class: "axis", x1: LEFT, x2: scale.width - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
}

function makeScale(width, [xLow, xHigh], [yLow, yHigh]) {
  return {
    width,
    x: (x) => LEFT + ((x - xLow) / (xHigh - xLow)) * (width - LEFT - RIGHT),
    y: (y) => HEIGHT - BOTTOM - ((y - yLow) / (yHigh - yLow)) * (HEIGHT - TOP - BOTTOM),
    step: (pixel) => xLow + ((pixel - LEFT) / (width - LEFT - RIGHT)) * (xHigh - xLow),
  };
}

function drawMarks(svg, scale, marks, colour) {
  for (const mark of marks) {
    const x = scale.x(mark.step);
    const since = scale.x(Math.min(mark.since ?? mark.step, mark.step));
    svg.append(makeSvg("g", { "data-mark": mark.signal, fill: colour, stroke: colour },
      makeSvg("title", {}, `update ${mark.step}: ${mark.message ?? mark.signal}`),
      makeSvg("rect", { class: "mark-since", x: since, y: TOP, width: x - since, height: HEIGHT - TOP - BOTTOM }),
      makeSvg("line", { class: "mark", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }),
      makeSvg("path", { class: "mark-head", d: `M${x - 4} ${TOP - 6}h8l-4 7z` })));
  }
}

function drawLine(svg, scale, line, isBehind) {
  const colour = runColour(line.run);
  if (line.low) {
    const band = path([...line.x, ...line.x.slice().reverse()], [...line.low, ...line.high.slice().reverse()], scale);
    svg.append(makeSvg("path", { class: "band", d: `${band}Z`, fill: colour }));
  }
  svg.append(makeSvg("path", { class: isBehind ? "curve behind" : "curve", d: path(line.x, line.y, scale), stroke: colour }));
  if (line.kind === "eval" || line.x.length === 1) {
    for (let i = 0; i < line.x.length; i++) {
      svg.append(makeSvg("circle", { cx: scale.x(line.x[i]), cy: scale.y(line.y[i]), r: 2.6, fill: colour }));
    }
  }
}

function nearest(xs, x) {
  let best = xs.length - 1;
  for (let i = best; i >= 0; i--) if (Math.abs(xs[i] - x) < Math.abs(xs[best] - x)) best = i;
  return best;
}

function readOut(panel, lines, runs, x) {
  const write = panel.is_share ? percent : number;
  const describe = (line) => {
    const i = nearest(line.x, x);
    const interval = line.low ? ` [${write(line.low[i])}, ${write(line.high[i])}]` : "";
    return `${line.kind === "eval" ? "evaluation" : "training"} at ${line.x[i]}: ${write(line.y[i])}${interval}`;
  };
  return [...new Set(lines.map((line) => line.run))].map((run) => make("div", {},
    runs.length > 1 ? swatch(run, runs[run].name) : null,
    lines.filter((line) => line.run === run).map(describe).join(" · ")));
}

function levels(panel) {
  const names = { random_play: "random play", optimum: "optimum" };
  const texts = panel.rules.map((rule) => `${names[rule.kind]} ${percent(rule.y)}`);
  return texts.length ? [make("div", {}, texts.join(" · "))] : [];
}

function drawPanel(panel, runs, visible, xSpan) {
  const lines = panel.lines.filter((line) => visible.has(line.run));
  const ySpan = yRange(panel, lines);
  const scale = makeScale(WIDTH, xSpan, ySpan);
  const svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: 0,
    "aria-label": `${panel.title}. Left and right read it out.` });
  drawAxes(svg, scale, xSpan, ySpan, panel.is_share);
  for (const index of visible) drawMarks(svg, scale, runs[index].collapse, runColour(index));
  for (const rule of panel.rules) {
    svg.append(makeSvg("path", { class: `rule ${rule.kind}`, d: `M${LEFT} ${scale.y(rule.y)}H${WIDTH - RIGHT}` }));
  }
  const evaluated = new Set(lines.filter((line) => line.kind === "eval").map((line) => line.run));
  for (const line of lines) drawLine(svg, scale, line, line.kind === "train" && evaluated.has(line.run));
  const describe = (x) => readOut(panel, lines, runs, x);
  const out = make("div", { class: "readout", "aria-live": "polite" });
  makeReadable(svg, scale, lines, (x) => out.replaceChildren(...levels(panel), ...describe(x)));
  return make("figure", { class: "card", "data-panel": panel.title }, make("h3", {}, panel.title), svg, out);
}

function makeReadable(svg, scale, lines, describe) {
  const steps = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const cursor = makeSvg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  svg.append(cursor);
  let position = -1;
  const show = (index) => {
    position = Math.max(0, Math.min(steps.length - 1, index));
    const x = scale.x(steps[position]);
    for (const name of ["x1", "x2"]) cursor.setAttribute(name, x);
    cursor.setAttribute("visibility", "visible");
    describe(steps[position]);
  };
  const rest = () => {
    position = -1;
    cursor.setAttribute("visibility", "hidden");
    describe(steps[steps.length - 1]);
  };
  if (!steps.length) return;
  rest();
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    show(nearest(steps, scale.step(((event.clientX - box.left) / box.width) * scale.width)));
  });
  svg.addEventListener("pointerleave", rest);
  svg.addEventListener("blur", rest);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) {
      event.preventDefault();
      event.stopPropagation();
      show(position + move);
    }
  });
}
