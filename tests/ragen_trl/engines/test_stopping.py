import pytest
import torch

from ragen_envs import parse_reply
from ragen_envs.parsing import ANSWER_CLOSE, ANSWER_OPEN, is_answered
from ragen_trl.engines import AnswerStop
from tests.conversations import converse, make_cached, make_model, make_reference


@pytest.fixture(scope="module")
def stop(tiny_tokenizer):
    return AnswerStop(tiny_tokenizer)


@pytest.mark.parametrize(
    ("text", "closes"),
    [
        ("<answer>Up</answer>", True),
        ("<answer>Up</answer", False),
        ("<answer>Up</ANSWER>", False),
        ("<think>a</think><answer>Up", False),
        ("</answer>", False),
        ("<think>or <answer>Up</answer>", False),
        ("<think>or <answer>Up</answer></think><answer>Up</answer>", True),
    ],
)
def test_is_closed_reads_the_end_of_the_reply(text, closes, stop, tiny_tokenizer):
    ids = tiny_tokenizer.encode(text, add_special_tokens=False)
    assert stop.is_closed(ids) is closes
    assert stop.find(ids) == len(ids)


@pytest.mark.parametrize("think", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "<think>maybe <answer>Up</answer> no</think><answer>Down</answer> <answer>Left</answer>",
        "</answer><think>a</think><answer>Up</answer> and so on</answer>",
        "<think>a<think>b</think><answer>Up</ANSWER></answer></answer>",
        "<think>a</think></answer><answer>Up<answer>Down</answer></answer>",
        "<answer>Up</answer><think>late</think><answer>Down</answer>",
        "so </think><answer>Up</answer><think>a</think><answer>Down</answer>",
        "<think>never <answer>Up</answer>",
    ],
)
def test_what_is_cut_off_changes_nothing_that_is_read(text, think, stop, tiny_tokenizer):
    ids = tiny_tokenizer.encode(text, add_special_tokens=False)
    kept = tiny_tokenizer.decode(ids[: stop.find(ids)], clean_up_tokenization_spaces=False)
    assert parse_reply(kept, None, think=think) == parse_reply(text, None, think=think)
    assert is_answered(text) == is_answered(kept)


def test_find_returns_the_first_closed_answer(stop, tiny_tokenizer):
    first = tiny_tokenizer.encode("<answer>Up</answer>", add_special_tokens=False)
    rest = tiny_tokenizer.encode(" and <answer>Down</answer>", add_special_tokens=False)
    assert stop.find(first + rest) == len(first)
    assert stop.find([]) == 0


EMPTY_ANSWER = ANSWER_OPEN + ANSWER_CLOSE


class SpellingTokenizer:
    """Reads tokens of the random conversations; some of them spell the tags of an answer."""

    def __len__(self):
        return 60

    def decode(self, ids, clean_up_tokenization_spaces=True):
        # Every third token ends with ">", and the tag is complete when the one before was even.
        text = ""
        for token in ids:
            text += "r>" if token % 3 == 0 else "</answe" if token % 2 == 0 else ANSWER_OPEN
        return text

    def batch_decode(self, rows):
        return [self.decode(row) for row in rows]


class CharacterTokenizer(SpellingTokenizer):
    """Reads every token as one character of an empty answer, over and over."""

    def decode(self, ids, clean_up_tokenization_spaces=True):
        return "".join(EMPTY_ANSWER[token % len(EMPTY_ANSWER)] for token in ids)


def test_cached_engine_finds_a_tag_that_is_spelled_by_character():
    size = len(EMPTY_ANSWER)
    spelled = [*range(12, size), *range(size), *range(size)]
    model, script = make_model(), iter(spelled)

    def say(_head, _inputs, logits):
        return torch.zeros_like(logits).index_fill(-1, torch.tensor(next(script)), 9.0)

    model.lm_head.register_forward_hook(say)
    session = make_cached(model, ends=[], stop=AnswerStop(CharacterTokenizer())).start([[5]])
    (reply,) = session.reply([0], [[]], [30])
    # From the middle of a tag on, then the first whole answer.
    assert reply.ids == spelled[: 5 + size]


def test_both_engines_stop_at_the_same_token():
    model, stop = make_model(), AnswerStop(SpellingTokenizer())
    shape = {"num_groups": 40, "group_size": 2}
    expected, _ = converse(make_reference(model, stop=stop), **shape)
    actual, _ = converse(make_cached(model, stop=stop), **shape)
    plain, _ = converse(make_cached(model), **shape)
    assert [e.ids for e in actual] == [e.ids for e in expected] != [e.ids for e in plain]
    replies = [reply.ids for episode in actual for reply in episode.replies]
    texts = [SpellingTokenizer().decode(ids) for ids in replies]
    assert any(is_answered(text) for text in texts)
    assert not any(is_answered(text[:-1]) for text in texts)
