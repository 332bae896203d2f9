"""The tests that need Chromium stay out of every run that does not ask for them."""

from pathlib import Path

import pytest

pytest_plugins = "pytester"

TESTS = """
import pytest

@pytest.mark.browser
def test_page(): ...

def test_kernel(): ...
"""


@pytest.mark.parametrize(
    "options",
    [("-m", "not slow"), ("-m", "browser")],
)
def test_browser_tests_run_where_they_are_asked_for_alone(pytester, options):
    pytester.makeconftest((Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers = browser: needs Chromium\n slow: takes long")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-v", *options)
    result.assert_outcomes(passed=1, deselected=1)
    name = "test_page" if "browser" in "".join(options) else "test_kernel"
    result.stdout.fnmatch_lines([f"*::{name} PASSED*"])
