import pytest
import torch

from ragen_trl.engines import AnswerStop
from ragen_trl.engines.stopping import CLOSING_TAG
from tests.conversations import converse, make_cached, make_model, make_reference


@pytest.fixture(scope="module")
def stop(tiny_tokenizer):
    return AnswerStop(tiny_tokenizer)


@pytest.mark.parametrize(
    ("text", "closes"),
    [
        ("<answer>Up</answer>", True),
        ("<answer>Up</answer", False),
        ("<answer>Up</ANSWER>", True),
        ("<think>a</think><answer>Up", False),
        ("</answer>", True),
    ],
)
def test_is_closed_reads_the_end_of_the_reply(text, closes, stop, tiny_tokenizer):
    ids = tiny_tokenizer.encode(text, add_special_tokens=False)
    assert stop.is_closed(ids) is closes
    assert stop.find(ids) == len(ids)


def test_find_returns_the_first_closed_answer(stop, tiny_tokenizer):
    first = tiny_tokenizer.encode("<answer>Up</answer>", add_special_tokens=False)
    rest = tiny_tokenizer.encode(" and <answer>Down</answer>", add_special_tokens=False)
    assert stop.find(first + rest) == len(first)
    assert stop.find([]) == 0


class SpellingTokenizer:
    """Reads tokens of the random conversations; some of them spell the closing tag."""

    def __len__(self):
        return 60

    def decode(self, ids):
        # Every third token ends with ">", and the tag is complete when the one before was even.
        text = ""
        for token in ids:
            text += "r>" if token % 3 == 0 else "</answe" if token % 2 == 0 else "x"
        return text

    def batch_decode(self, rows):
        return [self.decode(row) for row in rows]


class CharacterTokenizer(SpellingTokenizer):
    """Reads every token as one character of the closing tag, over and over."""

    def decode(self, ids):
        return "".join(CLOSING_TAG[token % len(CLOSING_TAG)] for token in ids)


def test_cached_engine_finds_a_tag_that_is_spelled_by_character():
    spelled = [*range(5, 9), *range(9), *range(9)]
    model, script = make_model(), iter(spelled)

    def say(_head, _inputs, logits):
        return torch.zeros_like(logits).index_fill(-1, torch.tensor(next(script)), 9.0)

    model.lm_head.register_forward_hook(say)
    session = make_cached(model, ends=[], stop=AnswerStop(CharacterTokenizer())).start([[5]])
    (reply,) = session.reply([0], [[]], [20])
    # From the middle of a tag on, then the first whole one.
    assert reply.ids == spelled[: 4 + len(CLOSING_TAG)]


def test_both_engines_stop_at_the_same_token():
    model, stop = make_model(), AnswerStop(SpellingTokenizer())
    shape = {"num_groups": 40, "group_size": 2}
    expected, _ = converse(make_reference(model, stop=stop), **shape)
    actual, _ = converse(make_cached(model, stop=stop), **shape)
    plain, _ = converse(make_cached(model), **shape)
    assert [e.ids for e in actual] == [e.ids for e in expected] != [e.ids for e in plain]
    replies = [reply.ids for episode in actual for reply in episode.replies]
    texts = [SpellingTokenizer().decode(ids) for ids in replies]
    assert any(text.endswith(CLOSING_TAG) for text in texts)
    assert all(CLOSING_TAG not in text[:-1] for text in texts)
