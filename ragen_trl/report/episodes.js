// The episode browser: filters, a list in pages, and one episode turn by turn.

const PAGE_SIZE = 25;
const ANY = "any";

class EpisodeBrowser {
  constructor(data, section) {
    this.data = data;
    this.controls = make("div", { class: "controls", role: "group", "aria-label": "Filter episodes" });
    this.list = make("div", { class: "card" });
    this.viewer = make("div", { class: "card", tabindex: 0, "aria-label": "Episode. Left and right step through its turns, j and k through the list." });
    this.reset(0);
    section.append(this.controls, make("div", { class: "browser" }, this.list, this.viewer));
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.draw();
  }

  get run() {
    return this.data.runs[this.filter.run];
  }

  reset(run, where = {}) {
    this.filter = { run, env: ANY, kind: ANY, file: ANY, outcome: ANY, kept: ANY, group: ANY, ...where };
    this.page = 0;
    this.selected = 0;
    this.turn = 0;
  }

  set(name, value) {
    if (name === "run") this.reset(Number(value));
    else this.filter = { ...this.filter, [name]: value, ...(name === "kind" ? { file: ANY } : {}) };
    this.page = this.selected = this.turn = 0;
    this.draw();
  }

  matches(episode) {
    const { env, kind, file, outcome, kept, group } = this.filter;
    return (env === ANY || episode.env === env)
      && (kind === ANY || this.run.files[episode.file].kind === kind)
      && (file === ANY || episode.file === Number(file))
      && (outcome === ANY || episode.is_solved === (outcome === "solved"))
      && (kept === ANY || Boolean(episode.is_kept) === (kept === "kept"))
      && (group === ANY || episode.group === Number(group));
  }

  draw() {
    this.found = this.run.episodes.filter((episode) => this.matches(episode));
    const focused = document.activeElement?.dataset.filter;
    this.controls.replaceChildren(...this.makeControls());
    if (focused) this.controls.querySelector(`[data-filter="${focused}"]`)?.focus();
    this.drawList();
    this.drawViewer();
  }

  makeControls() {
    const { run } = this;
    const files = [...run.files.keys()].filter((i) => run.files[i].num_shown && (this.filter.kind === ANY || run.files[i].kind === this.filter.kind));
    const distinct = (values) => [...new Set(values)].sort((a, b) => (a > b) - (a < b)).map((value) => [value, String(value)]);
    const inFile = run.episodes.filter((episode) => this.filter.file === ANY || episode.file === Number(this.filter.file));
    const control = (label, name, options) => {
      const select = choice(options, this.filter[name], (value) => this.set(name, value));
      select.dataset.filter = name;
      return labelled(label, select);
    };
    const any = [ANY, "all"];
    return [
      this.data.runs.length > 1 ? control("Run", "run", this.data.runs.map((r, i) => [i, r.name])) : null,
      control("Environment", "env", [any, ...distinct(run.episodes.map((episode) => episode.env))]),
      control("From", "kind", [any, ["train", "training"], ["eval", "evaluation"]]),
      control("Step", "file", [any, ...files.map((i) => [i, describeFile(run.files[i])])]),
      control("Outcome", "outcome", [any, ["solved", "solved"], ["failed", "failed"]]),
      control("Filter", "kept", [any, ["kept", "kept"], ["dropped", "not kept"]]),
      control("Group", "group", [any, ...distinct(inFile.map((episode) => episode.group))]),
      button("Clear", {}, () => { this.reset(this.filter.run); this.draw(); }),
    ].filter(Boolean);
  }

  drawList() {
    const { run, found } = this;
    const first = this.page * PAGE_SIZE;
    const rows = found.slice(first, first + PAGE_SIZE).map((episode, i) => this.makeRow(episode, first + i));
    const total = run.files.reduce((sum, file) => sum + file.num_episodes, 0);
    const pages = Math.max(1, Math.ceil(found.length / PAGE_SIZE));
    const turnPage = (by) => () => { this.page += by; this.select(this.page * PAGE_SIZE); };
    const count = `${found.length.toLocaleString("en")} match, of ${run.episodes.length.toLocaleString("en")} shown here and ${total.toLocaleString("en")} played.`;
    this.list.replaceChildren(
      make("p", { class: "quiet", id: "episode-count" }, count, " ", make("abbr", { title: this.data.rule }, "How they were chosen")),
      table(["#Step", "From", "#Group", "Outcome", "#Return", "#Turns", "Filter"], rows),
      make("div", { class: "pager" },
        button("Previous", { disabled: this.page === 0 ? "" : null }, turnPage(-1)),
        `page ${this.page + 1} of ${pages}`,
        button("Next", { disabled: this.page + 1 >= pages ? "" : null }, turnPage(1))));
  }

  makeRow(episode, index) {
    const file = this.run.files[episode.file];
    const cell = (text) => make("td", { class: "number" }, text);
    const row = make("tr", { class: "choice", tabindex: 0, "aria-selected": index === this.selected ? "true" : "false" },
      cell(String(file.step ?? "–")), make("td", {}, file.kind === "eval" ? "evaluation" : `rollout ${file.iteration ?? "?"}`),
      cell(String(episode.group)), make("td", {}, outcomeOf(episode)), cell(number(episode.reward)),
      cell(String(episode.turns.length)), make("td", { class: "quiet" }, keptLabel(episode)));
    row.addEventListener("click", () => this.select(index));
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") this.select(index); });
    return row;
  }

  select(index) {
    this.selected = Math.max(0, Math.min(this.found.length - 1, index));
    this.page = Math.floor(this.selected / PAGE_SIZE);
    this.turn = 0;
    const hadFocus = this.list.contains(document.activeElement);
    this.drawList();
    if (hadFocus) this.list.querySelector('[aria-selected="true"]')?.focus();
    this.drawViewer();
  }

  step(by) {
    const episode = this.found[this.selected];
    if (!episode) return;
    const last = episode.turns.length - (episode.final_state ? 0 : 1);
    this.turn = Math.max(0, Math.min(last, this.turn + by));
    this.drawViewer();
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select, svg")) return;
    const actions = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      j: () => this.select(this.selected + 1), k: () => this.select(this.selected - 1),
    };
    if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  }

  drawViewer() {
    // Buttons are drawn anew; without this, the keyboard would lose its place.
    if (this.viewer.contains(document.activeElement)) this.viewer.focus();
    const episode = this.found[this.selected];
    if (!episode) {
      this.viewer.replaceChildren(make("p", { class: "quiet" }, "No episode matches."));
      return;
    }
    const labels = episode.turns.map((turn, i) => `${i + 1}: ${signed(turn.reward === null ? null : turn.reward + turn.penalty)}`);
    if (episode.final_state) labels.push("end");
    const steps = labels.map((label, i) => button(label,
      { "aria-current": i === this.turn ? "step" : null, "aria-label": i < episode.turns.length ? `turn ${i + 1}` : "end" },
      () => { this.turn = i; this.drawViewer(); }));
    this.viewer.replaceChildren(
      make("h3", {}, `${episode.env}, seed ${episode.seed}, group ${episode.group}`),
      make("div", { class: "facts" }, ...this.makeFacts(episode)),
      make("div", { class: "steps", role: "group", "aria-label": "Turns, with what each paid" },
        button("←", { "aria-label": "previous turn" }, () => this.step(-1)), ...steps,
        button("→", { "aria-label": "next turn" }, () => this.step(1))),
      drawTurn(episode, this.turn, this.run));
  }

  makeFacts(episode) {
    const file = this.run.files[episode.file];
    return [
      make("span", {}, outcomeOf(episode)),
      make("span", {}, `return ${number(episode.reward)}`),
      make("span", {}, episode.end),
      make("span", {}, `${episode.tokens ?? "?"} sampled tokens`),
      make("span", {}, describeFile(file)),
      make("span", {}, file.kind === "eval" ? "not trained on" : trainedLabel(episode)),
    ];
  }
}

function outcomeOf(episode) {
  return make("span", { class: `badge ${episode.is_solved ? "good" : "bad"}` }, episode.is_solved ? "solved" : "failed");
}

function keptLabel(episode) {
  if (typeof episode.is_kept !== "boolean") return "";
  return episode.is_kept ? "kept" : "dropped";
}

function trainedLabel(episode) {
  if (!episode.is_kept) return "dropped by the filter, not trained on";
  return episode.advantages ? "kept and trained on" : "kept; advantages per token are not recorded, or there were none";
}

function describeFile(file) {
  if (file.kind === "eval") return `evaluation after update ${file.step ?? "?"} (${file.env})`;
  return `rollout ${file.iteration ?? "?"}, ${beforeUpdate(file)}`;
}

function beforeUpdate(file) {
  return `before update ${file.step === null ? "?" : file.step + 1}`;
}

function signed(value) {
  return Number.isFinite(value) ? (value > 0 ? "+" : "") + number(value) : "?";
}

function drawTurn(episode, index, run) {
  const cells = run.cells[episode.env];
  const states = [...episode.turns.map((turn) => turn.state), episode.final_state];
  const board = drawState(states[index], index ? states[index - 1] : null, cells);
  const turn = episode.turns[index];
  if (!turn) return make("div", { class: "turn" }, board, make("p", { class: "quiet" }, "What the last turn left behind."));
  const pieces = turn.reply.map(([kind, text]) => make("span", { class: kind }, text));
  const advantage = episode.advantages?.[index];
  return make("div", { class: "turn" }, board, make("div", {},
    make("pre", { class: "reply" }, ...(pieces.length ? pieces : [make("span", { class: "none" }, "(an empty reply)")])),
    drawActions(turn),
    make("div", { class: "facts" },
      make("span", {}, `reward ${signed(turn.reward)}`),
      make("span", { class: turn.is_valid ? null : "bad" }, turn.is_valid ? "valid reply" : `invalid reply, penalty ${signed(turn.penalty)}`),
      advantage === undefined || advantage === null ? null : make("span", {}, `advantage ${signed(advantage)}`),
      make("span", {}, `${turn.tokens ?? "?"} tokens`)),
    make("details", {}, make("summary", { class: "quiet" }, "The message it answers"), make("pre", {}, messageOf(turn, run.texts)))));
}

function drawActions(turn) {
  const executed = turn.executed.length;
  const chips = turn.actions.map((name, i) => make("span",
    { class: i < executed ? "action" : "action idle", title: i < executed ? "executed" : "not executed" }, name));
  return make("div", { class: "actions" }, ...(chips.length ? chips : [make("span", { class: "quiet" }, "no legal action")]));
}

function messageOf(turn, texts) {
  const [before, after] = turn.message.map((position) => texts[position]);
  return after === undefined ? before : before + turn.state + after;
}
