import math

import pytest
import torch

from ragen_trl.update import LossParts, build_micro_batches, starpo_loss, update_metrics
from tests.episodes import make_row, make_trajectory

PLAIN = {"epsilon_low": 0.2, "epsilon_high": 0.28, "entropy_coef": 0.0, "beta": 0.0}

# --- Numbers worked out by hand ---------------------------------------------------------------

# Row 0, A = +1: ratios 1.1 and 1.5, the second clipped at 1.28. Row 1, A = -1: ratio 0.7, clipped
# at 0.8. Losses -1.1, -1.28 and +0.8.
RATIOS = [[1.1, 1.5], [0.7]]
ADVANTAGES = [1.0, -1.0]


def hand_batch(loss_type="dapo", ratios=RATIOS, advantages=ADVANTAGES, loss_scale=1.0):
    rows = [
        make_row(make_trajectory([5], [6] * len(row), logps=[-1.0] * len(row)), advantage)
        for row, advantage in zip(ratios, advantages, strict=True)
    ]
    # The rows are sorted by their length; the longer one comes last.
    (batch,) = build_micro_batches(
        rows,
        loss_type=loss_type,
        loss_scale=loss_scale,
        max_tokens=20,
        num_micro_batches=1,
        process_index=0,
        num_processes=1,
        pad_token_id=0,
        pad_to_multiple_of=None,
    )
    logps = torch.full(batch["action_mask"].shape, -1.0, dtype=torch.float64)
    for i, row in enumerate(sorted(ratios, key=len)):
        logps[i, : len(row)] += torch.tensor(row, dtype=torch.float64).log()
    batch["old_per_token_logps"] = torch.full_like(logps, -1.0)
    return logps.requires_grad_(), batch


@pytest.mark.parametrize(
    ("loss_type", "expected"),
    [
        ("dapo", (-1.1 - 1.28 + 0.8) / 3),
        ("grpo", ((-1.1 - 1.28) / 2 + 0.8) / 2),
        # Divided by two rows of at most 20 tokens each.
        ("dr_grpo", (-1.1 - 1.28 + 0.8) / 40),
    ],
)
def test_starpo_loss_policy_term_by_hand(loss_type, expected):
    logps, batch = hand_batch(loss_type)
    loss, parts = starpo_loss(logps, torch.zeros_like(logps), batch, **PLAIN)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert parts.policy_loss.item() == pytest.approx(expected, rel=1e-6)
    assert [parts.low_clipped, parts.high_clipped, parts.num_tokens] == [1, 1, 3]
    # Only the token that is not clipped has a gradient: -A * ratio * weight.
    loss.backward()
    weight = {"dapo": 1 / 3, "grpo": 1 / 4, "dr_grpo": 1 / 40}[loss_type]
    expected_gradient = [[0.0, 0.0], [pytest.approx(-1.1 * weight, rel=1e-6), 0.0]]
    assert logps.grad.tolist() == expected_gradient


@pytest.mark.parametrize(
    ("advantage", "ratio", "low", "high"),
    [
        (1.0, 1.29, 0, 1),
        (1.0, 1.27, 0, 0),
        (1.0, 0.5, 0, 0),  # the lower clip is for negative advantages only
        (-1.0, 0.79, 1, 0),
        (-1.0, 0.81, 0, 0),
        (-1.0, 2.0, 0, 0),  # the upper clip is for positive advantages only
        (0.0, 2.0, 0, 0),
    ],
)
def test_starpo_loss_clip_sides(advantage, ratio, low, high):
    logps, batch = hand_batch(ratios=[[ratio]], advantages=[advantage])
    loss, parts = starpo_loss(logps, torch.zeros_like(logps), batch, **PLAIN)
    assert (parts.low_clipped, parts.high_clipped) == (low, high)
    loss.backward()
    is_trained = advantage != 0 and not low and not high
    assert (logps.grad != 0).all() == is_trained


@pytest.mark.parametrize("scale", [0.25, 0.5])
def test_loss_scale_multiplies_every_weight(scale):
    _, plain = hand_batch()
    _, scaled = hand_batch(loss_scale=scale)
    assert (scaled["loss_weights"] / plain["loss_weights"]).tolist() == pytest.approx([scale] * 2)


def test_starpo_loss_recorded_old_logps_are_compared_with_those_now():
    logps, batch = hand_batch(ratios=[[2.0]], advantages=[1.0])
    batch["old_per_token_logps"] = batch["sampling_per_token_logps"]
    _, parts = starpo_loss(logps, torch.zeros_like(logps), batch, **PLAIN)
    assert parts.logp_difference.item() == pytest.approx(math.log(2))
    assert not parts.logp_difference.requires_grad
    batch["old_per_token_logps"] = batch["sampling_per_token_logps"].clone()
    _, parts = starpo_loss(logps, torch.zeros_like(logps), batch, **PLAIN)
    assert parts.logp_difference.item() == 0.0


def test_starpo_loss_without_old_logps_takes_a_ratio_of_one():
    logps, batch = hand_batch(ratios=[[3.0, 0.1]], advantages=[2.0])
    del batch["old_per_token_logps"]
    loss, parts = starpo_loss(logps, torch.zeros_like(logps), batch, **PLAIN)
    assert loss.item() == pytest.approx(-2.0)
    assert parts.low_clipped == parts.high_clipped == 0
    loss.backward()
    # d(-A * r)/d logp = -A at r = 1, with a weight of 1/2.
    assert logps.grad.tolist() == [[-1.0, -1.0]]


def test_starpo_loss_entropy_bonus_by_hand():
    logps, batch = hand_batch()
    entropies = torch.tensor([[0.5, 77.0], [1.5, 4.0]], dtype=torch.float64, requires_grad=True)
    base, _ = starpo_loss(logps, torch.zeros_like(logps), batch, **PLAIN)
    loss, parts = starpo_loss(logps, entropies, batch, **(PLAIN | {"entropy_coef": 0.1}))
    # Three sampled tokens of weight 1/3; the 77 stands behind the end of the short row.
    assert (loss - base).item() == pytest.approx(-0.1 * (0.5 + 1.5 + 4.0) / 3, rel=1e-6)
    assert parts.entropy.item() == 6.0
    loss.backward()
    bonus = pytest.approx(-0.1 / 3, rel=1e-6)
    assert entropies.grad.tolist() == [[bonus, 0.0], [bonus, bonus]]
    # The policy term is reported without the bonus.
    assert parts.policy_loss.item() == pytest.approx(base.item(), rel=1e-12)


def test_starpo_loss_kl_by_hand():
    logps, batch = hand_batch(ratios=[[1.0]], advantages=[0.0])
    # The reference gives half the probability: k3 = 0.5 - log(0.5) - 1, gradient 1 - 0.5.
    batch["ref_per_token_logps"] = logps.detach() + math.log(0.5)
    loss, parts = starpo_loss(logps, torch.zeros_like(logps), batch, **(PLAIN | {"beta": 0.2}))
    k3 = 0.5 + math.log(2) - 1
    assert parts.kl.item() == pytest.approx(k3, rel=1e-12)
    assert loss.item() == pytest.approx(0.2 * k3, rel=1e-6)
    loss.backward()
    assert logps.grad.item() == pytest.approx(0.2 * 0.5, rel=1e-6)


def test_starpo_loss_without_beta_needs_no_reference():
    logps, batch = hand_batch()
    _, parts = starpo_loss(logps, torch.zeros_like(logps), batch, **PLAIN)
    assert parts.kl == 0.0
    with pytest.raises(KeyError, match="ref_per_token_logps"):
        starpo_loss(logps, torch.zeros_like(logps), batch, **(PLAIN | {"beta": 0.1}))


def test_starpo_loss_importance_weights_scale_the_policy_term_only():
    logps, batch = hand_batch(ratios=[[1.0, 1.0]], advantages=[1.0])
    entropies = torch.ones_like(logps)
    batch["importance_weights"] = torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    loss, parts = starpo_loss(logps, entropies, batch, **(PLAIN | {"entropy_coef": 0.1}))
    assert parts.policy_loss.item() == pytest.approx(-(0.5 + 0.25) / 2)
    assert loss.item() == pytest.approx(-(0.5 + 0.25) / 2 - 0.1, rel=1e-6)


def test_starpo_loss_difference_is_between_sampling_and_the_start_of_the_update():
    logps, batch = hand_batch()
    batch["sampling_per_token_logps"] = batch["old_per_token_logps"] + torch.tensor(
        [[0.5, 9.0], [-0.25, 0.0]]
    )
    _, parts = starpo_loss(logps, torch.zeros_like(logps), batch, **PLAIN)
    assert parts.logp_difference.item() == 0.75
    # A sampler that reports no number for a token does not spoil the mean.
    batch["sampling_per_token_logps"][0, 0] = math.nan
    _, parts = starpo_loss(logps, torch.zeros_like(logps), batch, **PLAIN)
    assert parts.logp_difference.item() == 0.25


def test_starpo_loss_parts_carry_no_gradient():
    logps, batch = hand_batch()
    loss, parts = starpo_loss(logps, torch.zeros_like(logps), batch, **PLAIN)
    assert loss.requires_grad
    assert not any(part.requires_grad for part in parts)


def test_starpo_loss_forbidden_tokens_leave_the_entropy_gradient_finite():
    """A vocabulary entry of probability 0 makes the textbook entropy NaN, 0 * -inf.

    Where such a distribution belongs to a token of the environment, no gradient at all may reach
    its entropy; a NaN that stands there must not spread to the sampled tokens.
    """
    logps, batch = hand_batch()
    logits = torch.zeros(2, 2, 4, dtype=torch.float64)
    logits[0, 1, 0] = -math.inf  # at the one position that was not sampled
    distribution = logits.log_softmax(dim=-1)
    entropies = -(distribution.exp() * distribution).sum(dim=-1)
    assert entropies.isnan().tolist() == [[False, True], [False, False]]
    entropies.requires_grad_()
    loss, parts = starpo_loss(logps, entropies, batch, **(PLAIN | {"entropy_coef": 0.1}))
    loss.backward()
    assert torch.isfinite(loss)
    assert parts.entropy.item() == pytest.approx(3 * math.log(4))
    assert entropies.grad[0, 1] == 0.0
    assert torch.isfinite(logps.grad).all()


# --- Metrics ----------------------------------------------------------------------------------

SUMS = LossParts(
    policy_loss=-0.5,
    entropy=6.0,
    low_clipped=1.0,
    high_clipped=2.0,
    kl=0.4,
    logp_difference=0.2,
    num_tokens=4.0,
)


def test_update_metrics_are_means_over_the_sampled_tokens():
    expected = {
        "policy_loss": -0.5,
        "entropy": 1.5,
        "clip_ratio/low_mean": 0.25,
        "clip_ratio/high_mean": 0.5,
        "clip_ratio/region_mean": 0.75,
        "sampling_logp_difference": 0.05,
    }
    assert update_metrics(SUMS, has_reference=False) == pytest.approx(expected)
    assert update_metrics(SUMS, has_reference=True) == pytest.approx(expected | {"kl": 0.1})


def test_update_metrics_without_sampled_tokens_there_are_none():
    assert update_metrics([0.0] * len(SUMS), has_reference=True) == {}
