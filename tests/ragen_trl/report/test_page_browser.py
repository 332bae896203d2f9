"""The report as people see it: opened from disk in headless Chromium."""

import os
import shutil

import pytest

from ragen_trl.report import write_report
from tests.runs import BOARDS, COLLAPSE, LAKE, write_run

pytestmark = pytest.mark.browser

ATTACK = (
    "</textarea><script>document.title = 'run'</script>"
    "<img src=x onerror=\"document.title = 'run'\"><b>bold</b>"
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    assert path, "Chromium is missing: `apt-get install chromium`, or set CHROMIUM to its path."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def open_report(chromium, tmp_path):
    """Open the report of runs; in the end, nothing was asked for but the file, and nothing failed."""
    pages, requests, errors = [], [], []

    def open_page(*folders, **options):
        path = tmp_path / "report.html"
        write_report(folders, path)
        page = chromium.new_page(**options)
        page.set_default_timeout(10_000)
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        page.goto(path.as_uri())
        pages.append((page, path.as_uri()))
        return page

    open_page.errors = errors
    yield open_page
    for page, _ in pages:
        page.close()
    assert requests == [uri for _, uri in pages]
    assert errors == []


@pytest.fixture
def page(open_report, tmp_path):
    return open_report(write_run(tmp_path / "lake", thought=ATTACK))


def choose(page, name, value):
    page.locator(f"[data-filter={name}]").select_option(label=value)


def count(page):
    return page.locator("#episode-count").inner_text().split(" match")[0]


def middle(locator):
    box = locator.bounding_box()
    return box["y"] + box["height"] / 2


def board(page):
    return page.locator("#episodes .board").get_attribute("aria-label")


def test_curves_are_drawn_with_references_and_collapse_marks(page):
    panels = page.locator("[data-panels=main] figure")
    titles = panels.locator("h3").all_inner_texts()
    assert titles[:2] == [f"Success, {LAKE}", "Return per episode"]
    success = panels.first
    assert success.locator("path.curve").count() == 2
    assert success.locator("path.band").count() == 1
    assert success.locator(".rule.random_play").count() == 1
    assert success.locator(".rule.optimum").count() == 1
    assert "random play 20.0 % · optimum 100.0 %" in success.inner_text()
    assert page.locator("[data-mark=entropy]").count() == panels.count()
    assert COLLAPSE["message"] in page.locator("#overview").inner_text()
    # The evaluations found 25 % and 50 %: they stand as high as these numbers on the axis.
    points = success.locator("circle").all()
    assert len(points) == 2
    for point, share in zip(points, ("25 %", "50 %"), strict=True):
        tick = success.locator("text", has_text=share)
        assert middle(point) == pytest.approx(middle(tick), abs=3.0)


def test_curves_are_read_out_under_the_pointer_and_by_keys(page):
    success = page.locator("[data-panels=main] figure").first
    box = success.locator("svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.12, box["y"] + 40)
    assert "training at 1: 5.0 %" in success.inner_text()
    page.mouse.move(0, 0)
    assert "training at 10: 50.0 %" in success.inner_text()
    success.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "training at 2: 10.0 %" in success.inner_text()
    assert "evaluation at 5: 25.0 % [15.0 %, 35.0 %]" in success.inner_text()


def test_further_curves_are_drawn_when_asked_for(page):
    assert page.get_by_text("learning_rate").count() == 0
    page.get_by_text("Everything else in the log").click()
    assert page.get_by_text("learning_rate").count() == 1


def test_episodes_are_filtered(page):
    assert count(page) == "166"
    choose(page, "kind", "evaluation")
    assert count(page) == "6"
    choose(page, "outcome", "solved")
    assert count(page) == "2"
    page.get_by_role("button", name="Clear").click()
    assert count(page) == "166"
    choose(page, "file", "rollout 3, before update 4")
    assert count(page) == "16"
    choose(page, "group", "2")
    assert count(page) == "4"
    choose(page, "outcome", "failed")
    assert count(page) == "2"
    choose(page, "kept", "not kept")
    assert count(page) == "0"
    assert "No episode matches." in page.locator("#episodes").inner_text()
    page.get_by_role("button", name="Clear").click()
    choose(page, "env", LAKE)
    assert count(page) == "166"


def test_episodes_are_listed_in_pages(page):
    rows = page.locator("#episodes tbody tr")
    assert rows.count() == 25
    for _ in range(6):
        page.get_by_role("button", name="Next", exact=True).click()
    assert "page 7 of 7" in page.locator("#episodes").inner_text()
    assert rows.count() == 166 - 6 * 25
    assert page.get_by_role("button", name="Next", exact=True).is_disabled()


def test_turns_are_stepped_by_keys_and_by_buttons(page):
    choose(page, "outcome", "solved")
    assert board(page) == BOARDS[0]
    page.locator("#episodes tbody tr").first.click()
    page.keyboard.press("ArrowRight")
    assert board(page) == BOARDS[1]
    # The player left one cell and came to the next.
    assert page.locator("#episodes .cell.changed").count() == 2
    viewer = page.locator("#episodes .browser > :last-child")
    assert "reward +1" in viewer.inner_text()
    assert "advantage -0.25" in viewer.inner_text()
    assert viewer.locator(".action").all_inner_texts() == ["Down"]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert board(page) == BOARDS[2]
    assert page.locator("#episodes .cell.player_on_goal").inner_text() == "√"
    page.get_by_role("button", name="previous turn").click()
    assert board(page) == BOARDS[1]
    page.get_by_text("The message it answers").click()
    assert f"Rules.\nState:\n{BOARDS[1]}\nTurns left: 4." in viewer.inner_text()
    first = viewer.locator("h3").inner_text()
    page.keyboard.press("j")
    assert board(page) == BOARDS[0]
    assert viewer.locator("h3").inner_text() != first
    page.keyboard.press("k")
    assert viewer.locator("h3").inner_text() == first


def test_replies_are_text_and_run_nothing(open_report, tmp_path):
    page = open_report(write_run(tmp_path / "lake", thought=ATTACK))
    assert page.title() == "lake"
    thought = page.locator("#episodes .thought")
    assert thought.inner_text() == f"<think>{ATTACK}</think>"
    assert page.locator("textarea, img, #episodes b, #episodes script").count() == 0
    # And if one came in by another way, it would be refused.
    assert open_report.errors == []
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), "
        "{textContent: \"document.title = 'run'\"}))"
    )
    assert page.title() == "lake"
    (refused,) = open_report.errors
    assert "Content Security Policy" in refused
    open_report.errors.clear()


def test_the_filters_choice_leads_to_the_episodes_of_a_group(page):
    section = page.locator("#filter")
    assert "Rollout 9, before update 10: 2 of 4 groups kept" in section.inner_text()
    slider = section.get_by_label("Rollout", exact=True)
    slider.fill("4")
    assert "Rollout 4, before update 5" in section.inner_text()
    rows = section.locator("tbody tr").all_inner_texts()
    # Two of four solved spread most: sqrt(4 / 4 * 1 / 3).
    assert rows[0].split("\t")[0] == "2"
    assert "0.5774" in rows[0]
    section.get_by_role("button", name="episodes of group 2").click()
    assert count(page) == "4"
    assert page.locator("[data-filter=group]").input_value() == "2"


def test_several_runs_are_compared_and_switched_off(open_report, tmp_path):
    folders = [write_run(tmp_path / name, num_updates=n) for name, n in (("a", 5), ("b", 10))]
    page = open_report(*folders, color_scheme="dark")
    rows = page.locator("#overview tbody tr").all_inner_texts()
    assert [row.split("\t")[0].strip() for row in rows] == ["a", "b"]
    success = page.locator("[data-panels=main] figure").first
    assert success.locator("path.curve").count() == 4
    page.get_by_label("b", exact=True).first.uncheck()
    assert success.locator("path.curve").count() == 2
    choose(page, "run", "b")
    assert count(page) == "166"


def test_a_run_that_left_little_says_what_is_missing(open_report, tmp_path):
    folder = write_run(tmp_path / "poor", num_updates=2)
    for name in ("log.jsonl", "references.json", "collapse.jsonl"):
        (folder / name).unlink()
    page = open_report(folder)
    page.get_by_text("What is missing or left out").click()
    notes = page.locator("#notes").inner_text()
    assert "poor: There is neither log.jsonl nor a checkpoint, and so there are no curves." in notes
    assert "There is no log to draw." in page.locator("#curves").inner_text()
    assert count(page) == "38"
