import base64
import hashlib
import html.parser
import json
import re

import pytest

from ragen_trl.report import write_report
from ragen_trl.report.page import to_inert_json
from tests.runs import COLLAPSE, write_lines, write_run

ATTACK = "</script><script>alert(1)</script></textarea><!--<script>&lt;\u2028\u2029<b>√</b>"


class Elements(html.parser.HTMLParser):
    """The elements of a page with their attributes and texts."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self._is_open = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append([tag, dict(attrs), ""])
        self._is_open = True

    def handle_endtag(self, tag):
        self._is_open = False

    def handle_data(self, data):
        if self._is_open:
            self.found[-1][2] += data

    def named(self, tag):
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def report(tmp_path, *folders):
    path = tmp_path / "report.html"
    write_report(folders or [write_run(tmp_path / "run", num_updates=2, thought=ATTACK)], path)
    return Elements(path.read_text(encoding="utf-8"))


def embedded(page):
    (text,) = [text for attributes, text in page.named("script") if attributes.get("id") == "data"]
    return text, json.loads(text)


def test_page_holds_what_a_model_wrote_as_inert_data(tmp_path):
    page = report(tmp_path)
    text, data = embedded(page)
    # Two scripts, the data and ours: none that the reply brought along.
    assert len(page.named("script")) == 2
    assert not {"textarea", "b"} & {name for name, _, _ in page.found}
    assert not re.search(r"[<>&\u2028\u2029]", text)
    thought = data["runs"][0]["episodes"][0]["turns"][0]["reply"][0]
    assert thought == ["thought", f"<think>{ATTACK}</think>"]


def test_page_allows_its_own_script_and_style_alone(tmp_path):
    page = report(tmp_path)
    ((_, style),) = page.named("style")
    (script,) = [text for attributes, text in page.named("script") if not attributes]
    (policy,) = [a["content"] for a, _ in page.named("meta") if "http-equiv" in a]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    assert rules == {"style-src": source_hash(style), "script-src": source_hash(script)}


def source_hash(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_page_loads_nothing(tmp_path):
    page = report(tmp_path)
    attributes = {name for _, found, _ in page.found for name in found}
    assert not {"src", "srcset", "action", "style", "onclick"} & attributes
    links = [found["href"] for _, found, _ in page.found if "href" in found]
    assert {link[0] for link in links} == {"#"}
    script = "".join(text for found, text in page.named("script") if not found)
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch("):
        assert word not in script


def test_page_of_a_run_with_a_strange_name(tmp_path):
    page = report(tmp_path, write_run(tmp_path / "<i>{{data}}&", num_updates=1))
    ((_, title),) = page.named("title")
    assert title == "<i>{{data}}&"
    assert page.named("i") == []
    assert embedded(page)[1]["runs"][0]["name"] == "<i>{{data}}&"


def test_page_of_several_runs_tells_them_apart(tmp_path):
    folders = [write_run(tmp_path / name, num_updates=5) for name in ("a/x", "b/x", "y")]
    _, data = embedded(report(tmp_path, *folders))
    names = [run["name"] for run in data["runs"]]
    assert names == [folders[0].as_posix(), folders[1].as_posix(), "y"]
    success = data["panels"][0]
    assert [line["run"] for line in success["lines"]] == [0, 0, 1, 1, 2, 2]
    assert len(success["rules"]) == 2
    for run in data["runs"]:
        assert len(run["episodes"]) == 5 * 16 + 6
        assert run["summary"][0]["last"]["step"] == 5


def test_page_of_200_rollouts_with_128_long_episodes_each_stays_below_20_megabytes(tmp_path):
    folder = write_run(
        tmp_path / "run", num_updates=1, num_groups=8, num_generations=16, thought="é" * 800
    )
    first = folder / "trajectories" / "train-00000.jsonl"
    text = first.read_text(encoding="utf-8")
    for iteration in range(1, 200):
        moved = text.replace(
            '"iteration": 0, "step": 0', f'"iteration": {iteration}, "step": {iteration}'
        )
        first.with_name(f"train-{iteration:05d}.jsonl").write_text(moved, encoding="utf-8")
    path = tmp_path / "report.html"
    write_report([folder], path)
    assert path.stat().st_size < 20e6
    _, data = embedded(Elements(path.read_text(encoding="utf-8")))
    (run,) = data["runs"]
    assert sum(file["num_episodes"] for file in run["files"]) == 200 * 128 + 6
    assert min(file["num_shown"] for file in run["files"]) >= 3
    assert [group["file"] for group in run["groups"]] == [k for k in range(200) for _ in range(8)]


def test_page_of_a_warning_of_other_types_holds_what_fits(tmp_path):
    folder = write_run(tmp_path / "run", num_updates=1)
    damage = {"since": "6", "signal": None, "message": {"text": "low"}}
    write_lines(folder / "collapse.jsonl", [COLLAPSE | damage])
    _, data = embedded(report(tmp_path, folder))
    assert data["runs"][0]["collapse"] == [
        {"step": 9, "since": None, "signal": None, "message": None, "action": "warn"}
    ]


def test_write_report_without_runs_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], tmp_path / "report.html")


def test_inert_json_is_json_of_the_same_content():
    data = {ATTACK: [ATTACK, 1.5, None, "\ud800"]}
    text = to_inert_json(data)
    assert json.loads(text) == data
    assert text.isascii()
    with pytest.raises(ValueError, match="JSON compliant"):
        to_inert_json([float("nan")])
