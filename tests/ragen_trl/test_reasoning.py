from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from ragen_trl.reasoning import find_text, split_first_reply
from tests.episodes import make_trajectory

CLOSE = "</think>"
ANSWER = "<answer>Up</answer>"


def read(pieces, decoder=None):
    """Return a tokenizer with these pieces, and their ids in order."""
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*pieces, "?"]))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    inner.decoder = decoder or decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="?")
    return tokenizer, [vocabulary[piece] for piece in pieces]


def split(reply, *, prompt=("Where?", "\nassistant\n"), think=True, later=(), decoder=None):
    """Cut an episode given as pieces; return both parts as lists of pieces."""
    pieces = [*prompt, *reply, *later]
    tokenizer, ids = read(pieces, decoder)
    first, second = len(prompt), len(prompt) + len(reply)
    trajectory = make_trajectory(ids[:first], ids[first:])
    trajectory.turn_index[second - first :] = [1] * len(later)
    cut = split_first_reply(trajectory, tokenizer, think=think)
    if cut is None:
        return None
    words = {i: piece for piece, i in tokenizer.get_vocab().items()}
    return [words[i] for i in cut.prompt_ids], [words[i] for i in cut.reasoning_ids]


def test_thought_is_what_stands_between_the_tags():
    prompt, thought = split(["<think>", "go", " up", CLOSE, ANSWER])
    assert prompt == ["Where?", "\nassistant\n", "<think>"]
    assert thought == ["go", " up"]


def test_tags_may_be_spelled_with_several_tokens():
    pieces = ["<", "th", "ink", ">", "go", "</", "think", ">", ANSWER]
    assert split(pieces) == (["Where?", "\nassistant\n", "<", "th", "ink", ">"], ["go"])


def test_tokens_shared_with_a_tag_are_not_reasoning():
    prompt, thought = split(["<think", ">\n", "go", ".</", "think", "><answer>Up"])
    assert prompt[-2:] == ["<think", ">\n"]
    assert thought == ["go"]


def test_text_before_the_think_tag_is_read_and_not_reasoning():
    prompt, thought = split(["Well. ", "<think>", "go", CLOSE])
    assert prompt[-2:] == ["Well. ", "<think>"]
    assert thought == ["go"]


def test_thought_that_never_closes_goes_to_the_end_of_the_reply():
    assert split(["<think>", "go", "<answer>"])[1] == ["go", "<answer>"]


def test_first_closing_tag_ends_the_thought():
    assert split(["<think>", "a", CLOSE, "b", CLOSE])[1] == ["a"]


def test_closing_tag_before_the_opening_one_is_text():
    assert split([CLOSE, "<think>", "a", CLOSE, "b"])[1] == ["a"]


def test_later_turns_are_left_out():
    assert split(["<think>", "a"], later=["<think>", "b", CLOSE])[1] == ["a"]


@pytest.mark.parametrize("space", ["", "\n", " \n\n"])
def test_block_that_the_prompt_opened_begins_with_the_reply(space):
    prompt = ("<think> is a tag.", "\nassistant\n", f"<think>{space}")
    assert split(["go", CLOSE, ANSWER], prompt=prompt) == (list(prompt), ["go"])


@pytest.mark.parametrize("end", ["<think>\n\n</think>\n\n", "<think> a"])
def test_block_that_the_prompt_does_not_end_with_is_not_open(end):
    prompt = ("Where?", end)
    assert split(["go", CLOSE, ANSWER], prompt=prompt) is None
    assert split(["<think>", "go", CLOSE], prompt=prompt)[1] == ["go"]


@pytest.mark.parametrize(
    "reply",
    [
        [],
        [ANSWER],
        ["<think>", CLOSE, ANSWER],
        ["<think", "></", "think>", ANSWER],
        ["<think>"],
        ["<answer>", "Up", "<think>", "go", CLOSE],
    ],
)
def test_reply_without_a_thought_before_its_answer_has_none(reply):
    assert split(reply) is None


def test_without_think_blocks_the_whole_reply_is_the_thought():
    reply = ["<answer>", "Up", "</answer>", "<|im_end|>"]
    assert split(reply, think=False) == (["Where?", "\nassistant\n"], reply)
    assert split([], think=False) is None


def test_decoder_that_eats_the_first_space_finds_the_same():
    metaspace = decoders.Metaspace()
    reply = ["▁<", "think", ">", "▁go", "▁up", "▁</", "think", ">"]
    assert split(reply, decoder=metaspace)[1] == ["▁go", "▁up"]


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.sampled_from(["", "é ", "<", "</think>"]),
    st.sampled_from(["", "g", "go < up é", "<think>"]),
    st.sets(st.integers(1, 50)),
)
def test_tokens_are_those_that_lie_inside_of_the_block(before, thought, cuts):
    text = f"{before}<think>{thought}</think>{ANSWER}"
    ends = sorted({cut for cut in cuts if cut < len(text)} | {len(text)})
    pieces = [text[a:b] for a, b in pairwise([0, *ends])]
    first = len(before) + len("<think>")
    spans = list(pairwise([0, *ends]))
    inside = [text[a:b] for a, b in spans if first <= a and b <= first + len(thought)]
    read_before = [text[a:b] for a, b in spans if a < first]
    prompt = ("Where?", "\nassistant\n")
    expected = ([*prompt, *read_before], inside) if inside else None
    assert split(pieces, prompt=prompt) == expected


def test_find_text_returns_the_tokens_of_the_first_occurrence():
    tokenizer, ids = read(["a", "b<", "x", ">c", "<x>"])
    assert find_text(ids, "<x>", tokenizer) == (1, 4)
    assert find_text(ids, "<y>", tokenizer) is None
    assert find_text([], "<x>", tokenizer) is None
