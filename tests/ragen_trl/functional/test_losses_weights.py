import math

import pytest
import torch
from hypothesis import given, settings

from ragen_trl.functional import clipped_policy_loss, importance_weights, row_weights
from tests.reference import losses as reference
from tests.reference.batches import GARBAGE, batches, padded

NAN, INF = math.nan, math.inf
EPSILONS = {"epsilon_low": 0.2, "epsilon_high": 0.28}
WEIGHT_KINDS = ("token_mean", "trajectory_mean", "constant")
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
quick = settings(derandomize=True, max_examples=30, deadline=None)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # 8 tokens in 3 rows that have any; 16 at most in a row.
        ("token_mean", [1 / 8, 0, 1 / 8, 1 / 8]),
        ("trajectory_mean", [1 / 3, 0, 1 / 6, 1 / 15]),
        ("constant", [1 / 48, 0, 1 / 48, 1 / 48]),
    ],
)
def test_row_weights_hand_worked(kind, expected):
    weights = row_weights(torch.tensor([1, 0, 2, 5]), kind=kind, max_tokens=16)
    assert weights.dtype == torch.float32
    assert weights.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", WEIGHT_KINDS)
def test_row_weights_without_any_token_are_zero(kind):
    assert row_weights(torch.tensor([0, 0]), kind=kind, max_tokens=4).tolist() == [0.0, 0.0]
    assert row_weights(torch.tensor([], dtype=torch.long), kind=kind, max_tokens=4).shape == (0,)


@pytest.mark.parametrize("kind", WEIGHT_KINDS)
@quick
@given(batch=batches())
def test_row_weights_give_the_batch_loss_of_the_definition(kind, batch):
    _, _, losses, mask = batch
    weights = row_weights(mask.sum(dim=1), kind=kind, max_tokens=7)
    loss = (weights.unsqueeze(1) * torch.where(mask, losses, 0.0)).sum()
    expected = reference.batch_loss(losses.tolist(), mask.tolist(), kind, max_tokens=7)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


def accumulated_gradient(weights, inputs, features, sizes):
    """Add up the gradient of a shared parameter over micro-batches of the given sizes."""
    parameter = torch.zeros(features.shape[-1], dtype=torch.float64, requires_grad=True)
    for rows in torch.arange(len(weights)).split(sizes):
        old_logps, advantages, mask = (x[rows] for x in inputs)
        logps = old_logps + features[rows] @ parameter
        loss = clipped_policy_loss(logps, old_logps, advantages, mask, **EPSILONS).per_token_loss
        (weights[rows].unsqueeze(1) * loss).sum().backward()
    return parameter.grad


@pytest.mark.parametrize("kind", WEIGHT_KINDS)
@pytest.mark.parametrize("sizes", [[8], [2, 2, 2, 2], [1] * 8, [5, 1, 2]])
def test_row_weights_gradient_is_the_same_for_any_micro_batches(kind, sizes):
    generator = torch.Generator().manual_seed(3)
    old_logps, noise = torch.randn(2, 8, 6, generator=generator, dtype=torch.float64)
    features = torch.randn(8, 6, 4, generator=generator, dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor([6, 1, 0, 3, 2, 5, 0, 4]).unsqueeze(1)
    weights = row_weights(mask.sum(dim=1), kind=kind, max_tokens=6)
    inputs = (old_logps, noise, mask)
    # All rows at once, written as the definition of the batch loss.
    parameter = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    per_token = -((features @ parameter).exp() * noise)
    rows = [per_token[i][mask[i]] for i in range(8) if mask[i].any()]
    total = {
        "token_mean": torch.cat(rows).mean(),
        "trajectory_mean": torch.stack([row.mean() for row in rows]).mean(),
        "constant": torch.stack([row.sum() / 6 for row in rows]).mean(),
    }[kind]
    total.backward()
    grad = accumulated_gradient(weights, inputs, features, sizes)
    torch.testing.assert_close(grad, parameter.grad, rtol=1e-6, atol=1e-7)


def test_row_weights_taken_per_micro_batch_would_change_the_gradient():
    # Negative control of the test above: a token mean per micro-batch is not the token mean.
    counts = torch.tensor([4, 1])
    whole = row_weights(counts, kind="token_mean")
    parts = torch.cat([row_weights(part, kind="token_mean") / 2 for part in counts.split(1)])
    assert whole.tolist() == pytest.approx([0.2, 0.2])
    assert parts.tolist() == pytest.approx([0.125, 0.5])


def test_row_weights_wrong_arguments_raise():
    counts = torch.tensor([1, 2])
    with pytest.raises(
        ValueError, match="must be one of 'token_mean', 'trajectory_mean', 'constant', got 'mean'"
    ):
        row_weights(counts, kind="mean")
    for max_tokens in (None, 0):
        with pytest.raises(ValueError, match="`max_tokens` must be at least 1 when `kind` is"):
            row_weights(counts, kind="constant", max_tokens=max_tokens)
    with pytest.raises(ValueError, match="`num_action_tokens` must be at least 0, got -2"):
        row_weights(-counts, kind="token_mean")
    with pytest.raises(ValueError, match=r"`num_action_tokens` must have shape `\(R,\)`"):
        row_weights(counts[None], kind="token_mean")
    with pytest.raises(TypeError, match="`num_action_tokens` must be an integer tensor"):
        row_weights(counts.float(), kind="token_mean")


# Ratios 4, 0.5, (unsampled), 1 with product 2; second row 0.1, 1, 1, (unsampled) with product 0.1.
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token_truncate", [[3.0, 0.5, 0.0, 1.0], [0.25, 1.0, 1.0, 0.0]]),
        ("token_mask", [[0.0, 0.5, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]),
        ("sequence_truncate", [[2.0, 2.0, 0.0, 2.0], [0.25, 0.25, 0.25, 0.0]]),
        ("sequence_mask", [[2.0, 2.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]]),
    ],
)
def test_importance_weights_hand_worked(mode, expected):
    old_logps = torch.tensor([[4.0, 0.5, 9.0, 1.0], [0.1, 1.0, 1.0, 9.0]]).double().log()
    mask = torch.tensor([[True, True, False, True], [True, True, True, False]])
    weights = importance_weights(
        old_logps, torch.zeros_like(old_logps), mask, mode=mode, clip_min=0.25, clip_max=3.0
    )
    torch.testing.assert_close(weights, torch.tensor(expected).double(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bounds", [(None, None), (0.5, None), (None, 2.0), (0.5, 2.0)])
@quick
@given(batch=batches())
def test_importance_weights_equal_definition(mode, bounds, batch):
    old_logps, sampling_logps, advantages, mask = batch
    sampling_logps = torch.where(advantages > 1, NAN, sampling_logps)
    weights = importance_weights(
        old_logps, sampling_logps, mask, mode=mode, clip_min=bounds[0], clip_max=bounds[1]
    )
    expected = reference.importance_weights(
        old_logps.tolist(), sampling_logps.tolist(), mask.tolist(), mode, *bounds
    )
    torch.testing.assert_close(
        weights, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("mode", MODES)
@quick
@given(batch=batches())
def test_importance_weights_extra_padding_adds_zeros_only(mode, batch):
    old_logps, sampling_logps, _, action_mask = batch
    options = {"mode": mode, "clip_min": 0.5, "clip_max": 2.0}
    wide = importance_weights(
        padded(old_logps, NAN), padded(sampling_logps, INF), padded(action_mask, False), **options
    )
    short = importance_weights(old_logps, sampling_logps, action_mask, **options)
    torch.testing.assert_close(wide, padded(short, 0.0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("garbage", GARBAGE)
@quick
@given(batch=batches())
def test_importance_weights_garbage_at_unsampled_tokens_changes_nothing(mode, garbage, batch):
    old_logps, sampling_logps, _, mask = batch
    options = {"mode": mode, "clip_min": 0.5, "clip_max": 2.0}
    weights = importance_weights(old_logps, sampling_logps, mask, **options)
    dirty_old = torch.where(mask, old_logps, garbage)
    dirty_sampling = torch.where(mask, sampling_logps, garbage)
    assert torch.equal(importance_weights(dirty_old, sampling_logps, mask, **options), weights)
    assert torch.equal(importance_weights(old_logps, dirty_sampling, mask, **options), weights)
    assert not weights[~mask].any()


@pytest.mark.parametrize("mode", MODES)
def test_importance_weights_missing_sampling_logp_counts_as_one(mode):
    weights = importance_weights(
        torch.tensor([[-7.0, math.log(2)]]),
        torch.tensor([[NAN, 0.0]]),
        torch.tensor([[True, True]]),
        mode=mode,
        clip_min=0.0,
        clip_max=10.0,
    )
    expected = [2.0, 2.0] if mode.startswith("sequence") else [1.0, 2.0]
    assert weights[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("mode", "expected"), [("token_truncate", 2.0), ("token_mask", 0.0)])
def test_importance_weights_overflowing_ratio_stays_finite(mode, expected):
    weights = importance_weights(
        torch.zeros(1, 1),
        torch.full((1, 1), -1000.0),
        torch.tensor([[True]]),
        mode=mode,
        clip_min=None,
        clip_max=2.0,
    )
    assert weights.item() == expected


@pytest.mark.parametrize("mode", MODES)
def test_importance_weights_bounds_are_inside(mode):
    old_logps = torch.tensor([[0.0]])
    weights = importance_weights(
        old_logps, old_logps, torch.tensor([[True]]), mode=mode, clip_min=1.0, clip_max=1.0
    )
    assert weights.item() == 1.0


def test_importance_weights_carry_no_gradient():
    old_logps = torch.zeros(1, 1, requires_grad=True)
    weights = importance_weights(
        old_logps,
        old_logps.detach(),
        torch.tensor([[True]]),
        mode="token_mask",
        clip_min=None,
        clip_max=None,
    )
    assert not weights.requires_grad


def test_importance_weights_wrong_arguments_raise():
    x, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"`mode` must be one of 'token_truncate', .* got 'token'"):
        importance_weights(x, x, mask, mode="token", clip_min=None, clip_max=None)
    with pytest.raises(ValueError, match=r"`clip_min` must be at least 0 or None, got -0.5"):
        importance_weights(x, x, mask, mode="token_mask", clip_min=-0.5, clip_max=None)
    with pytest.raises(ValueError, match="`clip_max` must be at least `clip_min` and 0, or None"):
        importance_weights(x, x, mask, mode="token_mask", clip_min=2.0, clip_max=1.0)
