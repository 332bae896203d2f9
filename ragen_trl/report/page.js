const data = JSON.parse(document.getElementById("data").textContent);
drawOverview(data);
drawCurves(data);
const browser = new EpisodeBrowser(data, document.getElementById("episodes"));
drawFilter(data, (run, where) => {
  browser.reset(run, { kind: "train", ...where });
  browser.draw();
  document.getElementById("episodes").scrollIntoView();
});
