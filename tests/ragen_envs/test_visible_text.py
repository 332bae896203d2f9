import sys
import unicodedata

import pytest

from ragen_envs.visible_text import is_visible_symbol, visible_form


@pytest.mark.parametrize("symbol", ["#", "_", "√", "█", "é", "墙", "🧱", "ㅏ", "¨"])
def test_is_visible_symbol_takes_what_can_be_seen_alone(symbol):
    assert is_visible_symbol(symbol)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "##",
            " ",
            "\n",
            "\u00a0",
            "\u3000",
            "\u200b",
            "\u00ad",
            "\u0301",
            "\u20dd",
            "\u0903",
        ),
        *("\ufe0f", "\U000e0101", "\u2800", "\u115f", "\u1160", "\u3164", "\uffa0", "\u034f"),
        *("\u11a8", "\U0001f1e9", "\U0001f3fd", "\ue000", "\ud800"),
    ],
)
def test_is_visible_symbol_refuses_blanks_and_what_joins_its_neighbour(text):
    assert not is_visible_symbol(text)


def test_is_visible_symbol_refuses_every_mark_format_and_space():
    refused = {"Mn", "Me", "Mc", "Cf", "Cc", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"}
    taken = {
        unicodedata.category(s) for s in map(chr, range(sys.maxunicode)) if is_visible_symbol(s)
    }
    assert not taken & refused
    assert {"Lu", "Ll", "Lo", "Nd", "Sm", "So", "Po"} <= taken


@pytest.mark.parametrize(
    "other",
    ["CAFÉ BAR", "Cafe\u0301 Bar", " Café \u00a0 Bar", "Café\u2800Bar", "Café\ufe0f B\u200bar"],
)
def test_visible_form_is_shared_by_texts_that_look_alike(other):
    assert visible_form(other) == visible_form("Café Bar") == "café bar"


@pytest.mark.parametrize("other", ["Cafe Bar", "CaféBar", "Café-Bar"])
def test_visible_form_keeps_apart_what_looks_different(other):
    assert visible_form(other) != visible_form("Café Bar")


@pytest.mark.parametrize("text", ["", " ", "\u2800", "\u3164 \uffa0", "\u200b", "\ufe0f"])
def test_visible_form_of_blanks_is_empty(text):
    assert visible_form(text) == ""
