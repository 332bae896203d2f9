// A state as coloured cells where its symbols are known, else as it stands.

function boardRows(state, cells) {
  const rows = state.split("\n").map((row) => Array.from(row));
  const end = rows.findIndex((row) => row.length !== rows[0].length || row.some((symbol) => !(symbol in cells)));
  return end < 0 ? rows : rows.slice(0, end);
}

function drawState(state, before, cells) {
  const rows = cells ? boardRows(state, cells) : [];
  if (!rows.length || !rows[0].length) return make("pre", { class: "state" }, state || "(no state recorded)");
  const old = before ? boardRows(before, cells) : [];
  const isChanged = (y, x) => old.length === rows.length && old[y].length === rows[y].length && old[y][x] !== rows[y][x];
  const board = make("div", { class: "board", role: "img", "aria-label": rows.map((row) => row.join("")).join("\n") });
  board.style.gridTemplateColumns = `repeat(${rows[0].length}, auto)`;
  rows.forEach((row, y) => row.forEach((symbol, x) => {
    const kind = cells[symbol];
    board.append(make("span", { class: `cell ${kind}${isChanged(y, x) ? " changed" : ""}`, title: kind.replaceAll("_", " ") }, symbol));
  }));
  const rest = state.split("\n").slice(rows.length).join("\n");
  return make("div", {}, board, rest ? make("pre", { class: "state" }, rest) : null);
}
