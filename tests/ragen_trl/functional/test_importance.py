import math

import pytest
import torch
from hypothesis import given, settings

from ragen_trl.functional import importance_weights
from tests.reference import losses as reference
from tests.reference.batches import GARBAGE, batches, padded

NAN, INF = math.nan, math.inf
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
quick = settings(derandomize=True, max_examples=30, deadline=None)


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
