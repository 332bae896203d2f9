import math

import pytest
import torch

from ragen_trl.engines import SamplingRules

PROBABILITIES = torch.tensor([0.5, 0.3, 0.15, 0.05])


def draw_many(rules, logits=None, history=None, count=4000):
    torch.manual_seed(0)
    logits = PROBABILITIES.log() if logits is None else logits
    history = None if history is None else torch.tensor([history]).expand(count, -1)
    ids, logps = rules.draw(logits.expand(count, -1), history)
    return torch.bincount(ids, minlength=4) / count, ids, logps


def test_greedy_takes_the_most_probable_token():
    shares, _, logps = draw_many(SamplingRules(temperature=0))
    assert shares.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert logps[0].item() == pytest.approx(math.log(0.5))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_recorded_probabilities(temperature):
    shares, ids, logps = draw_many(SamplingRules(temperature=temperature))
    expected = PROBABILITIES ** (1 / temperature)
    expected = expected / expected.sum()
    assert shares.tolist() == pytest.approx(expected.tolist(), abs=0.03)
    assert logps.exp().tolist() == pytest.approx(expected[ids].tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({"top_k": 2}, 2),
        ({"top_p": 0.79}, 2),
        ({"top_p": 0.81}, 3),
        ({"min_p": 0.2}, 3),
        ({"min_p": 0.5}, 2),
    ],
)
def test_truncation_changes_what_is_drawn_and_not_what_is_recorded(rules, kept):
    shares, ids, logps = draw_many(SamplingRules(**rules))
    expected = torch.where(torch.arange(4) < kept, PROBABILITIES, 0.0)
    assert shares.tolist() == pytest.approx((expected / expected.sum()).tolist(), abs=0.03)
    assert logps.exp().tolist() == pytest.approx(PROBABILITIES[ids].tolist(), rel=1e-5)


def test_repetition_penalty_lowers_what_was_said_and_is_recorded():
    rules = SamplingRules(repetition_penalty=2.0)
    assert rules.needs_history
    logits = torch.tensor([2.0, 1.0, 0.0, 0.0])
    _, ids, logps = draw_many(rules, logits, history=[0, 0])
    # Positive logits of said tokens are halved: 1, 1, 0, 0.
    expected = torch.tensor([1.0, 1.0, 0.0, 0.0]).log_softmax(0)
    assert logps.tolist() == pytest.approx(expected[ids].tolist(), rel=1e-5)
    assert not SamplingRules().needs_history
