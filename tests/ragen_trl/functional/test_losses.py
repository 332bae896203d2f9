import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import clipped_policy_loss
from tests.reference import losses as reference
from tests.reference.batches import GARBAGE, batches, padded

NAN = math.nan
EPSILONS = {"epsilon_low": 0.2, "epsilon_high": 0.28}
quick = settings(derandomize=True, max_examples=30, deadline=None)


def gradient(loss_fn, logps):
    logps = logps.clone().requires_grad_()
    loss_fn(logps).sum().backward()
    return logps.grad


# Columns: ratio, advantage, loss, low clipped, high clipped.
CLIP_TABLE = [
    (1.25, 1.0, -1.25, False, False),
    (1.30, 1.0, -1.28, False, True),
    (1.30, 2.0, -2.56, False, True),
    (1.30, -1.0, 1.30, False, False),
    (1.25, -1.0, 1.25, False, False),
    (0.75, 1.0, -0.75, False, False),
    (0.75, -1.0, 0.80, True, False),
    (0.85, -1.0, 0.85, False, False),
    (0.10, -3.0, 2.40, True, False),
    (5.00, -2.0, 10.0, False, False),
    (5.00, 0.0, 0.0, False, False),
    (1.00, 1.0, -1.0, False, False),
]


@pytest.mark.parametrize(("ratio", "advantage", "loss", "is_low", "is_high"), CLIP_TABLE)
def test_clipped_policy_loss_each_side_clips_its_own_sign_only(
    ratio, advantage, loss, is_low, is_high
):
    logps = torch.tensor([[math.log(ratio)]], dtype=torch.float64)
    result = clipped_policy_loss(
        logps - 1.5,
        torch.full_like(logps, -1.5),
        torch.tensor([advantage], dtype=torch.float64),
        torch.tensor([[True]]),
        **EPSILONS,
    )
    assert result.per_token_loss.item() == pytest.approx(loss, abs=1e-12)
    assert result.is_low_clipped.item() is is_low
    assert result.is_high_clipped.item() is is_high


@pytest.mark.parametrize(("ratio", "advantage", "loss", "is_low", "is_high"), CLIP_TABLE)
def test_clipped_policy_loss_gradient_is_minus_ratio_times_advantage_or_none(
    ratio, advantage, loss, is_low, is_high
):
    # d(-r * A) / dlogp = -r * A, and 0 where the clip holds the ratio.
    grad = gradient(
        lambda logps: (
            clipped_policy_loss(
                logps,
                torch.zeros_like(logps),
                torch.tensor([advantage]),
                torch.tensor([[True]]),
                **EPSILONS,
            ).per_token_loss
        ),
        torch.tensor([[math.log(ratio)]], dtype=torch.float64),
    )
    expected = 0.0 if is_low or is_high else -ratio * advantage
    assert grad.item() == pytest.approx(expected, abs=1e-12)


@quick
@given(batches(), st.floats(0, 0.5), st.floats(0, 0.5))
def test_clipped_policy_loss_equals_definition(batch, epsilon_low, epsilon_high):
    epsilons = {"epsilon_low": epsilon_low, "epsilon_high": epsilon_high}
    per_token_loss = clipped_policy_loss(*batch, **epsilons).per_token_loss
    expected = reference.clipped_policy_loss(*(x.tolist() for x in batch), **epsilons)
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(per_token_loss, expected, rtol=0, atol=1e-12)


@quick
@given(batches())
def test_clipped_policy_loss_per_trajectory_advantage_is_broadcast(batch):
    logps, old_logps, advantages, action_mask = batch
    per_row = advantages[:, 0]
    wide = per_row.unsqueeze(1).expand_as(logps)
    narrow_result = clipped_policy_loss(logps, old_logps, per_row, action_mask, **EPSILONS)
    wide_result = clipped_policy_loss(logps, old_logps, wide, action_mask, **EPSILONS)
    for narrow, broad in zip(narrow_result, wide_result, strict=True):
        assert torch.equal(narrow, broad)


@pytest.mark.parametrize("dirty_inputs", [(0, 1, 2), (0,), (1,), (2,)])
@pytest.mark.parametrize("garbage", GARBAGE)
@quick
@given(batch=batches())
def test_clipped_policy_loss_garbage_at_unsampled_tokens_changes_nothing(
    garbage, dirty_inputs, batch
):
    # One input at a time as well: together, infinite log-probabilities could cancel.
    mask = batch[3]
    dirty = [torch.where(mask, x, garbage) if i in dirty_inputs else x for i, x in enumerate(batch)]
    result = clipped_policy_loss(*batch, **EPSILONS)
    for clean, other in zip(result, clipped_policy_loss(*dirty, **EPSILONS), strict=True):
        assert torch.equal(clean, other)
        assert not other[~mask].any()
    clean_grad, dirty_grad = (
        gradient(lambda x, i=i: clipped_policy_loss(x, *i[1:], **EPSILONS).per_token_loss, i[0])
        for i in (batch, dirty)
    )
    assert torch.equal(clean_grad, dirty_grad)


def test_clipped_policy_loss_garbage_at_sampled_tokens_is_not_hidden():
    logps = torch.tensor([[NAN, 0.0]])
    mask = torch.tensor([[True, True]])
    result = clipped_policy_loss(logps, torch.zeros(1, 2), torch.ones(1), mask, **EPSILONS)
    assert result.per_token_loss.isnan().tolist() == [[True, False]]


@pytest.mark.parametrize(("advantage", "loss"), [(1.0, -1.28), (0.0, 0.0)])
def test_clipped_policy_loss_overflowing_ratio_without_gradient_stays_finite(advantage, loss):
    # exp(1000) is inf; the naive minimum would send 0 * inf = nan backwards.
    def loss_fn(logps):
        return clipped_policy_loss(
            logps, torch.zeros(1, 1), torch.tensor([advantage]), torch.tensor([[True]]), **EPSILONS
        ).per_token_loss

    logps = torch.tensor([[1000.0]])
    assert loss_fn(logps).item() == pytest.approx(loss)
    assert gradient(loss_fn, logps).item() == 0.0


def test_clipped_policy_loss_first_step_gradient_is_the_policy_gradient():
    logps = torch.tensor([[-1.0, -2.0], [-0.5, -3.0]])
    mask = torch.tensor([[True, True], [True, False]])
    grad = gradient(
        lambda x: (
            clipped_policy_loss(
                x, logps, torch.tensor([2.0, -1.0]), mask, **EPSILONS
            ).per_token_loss
        ),
        logps,
    )
    assert grad.tolist() == [[-2.0, -2.0], [1.0, 0.0]]


def test_clipped_policy_loss_sends_no_gradient_to_constants():
    logps, old_logps = torch.zeros(1, 1, requires_grad=True), torch.zeros(1, 1, requires_grad=True)
    advantages = torch.ones(1, requires_grad=True)
    mask = torch.tensor([[True]])
    clipped_policy_loss(
        logps, old_logps, advantages, mask, **EPSILONS
    ).per_token_loss.sum().backward()
    assert logps.grad.item() == -1.0
    assert old_logps.grad is None
    assert advantages.grad is None


def test_clipped_policy_loss_bfloat16_is_computed_in_float32():
    # Rounding the ratio to bfloat16 before the product would give 3.5.
    logps, old_logps = torch.tensor([[[-0.1]], [[-0.25]]], dtype=torch.bfloat16)
    result = clipped_policy_loss(
        logps, old_logps, torch.tensor([-3.0]), torch.tensor([[True]]), **EPSILONS
    )
    assert result.per_token_loss.dtype == torch.bfloat16
    assert result.per_token_loss.item() == 3.484375


@quick
@given(batch=batches(), order=st.randoms(use_true_random=False))
def test_clipped_policy_loss_permuted_rows_are_permuted(batch, order):
    permutation = list(range(len(batch[0])))
    order.shuffle(permutation)
    shuffled = [x[permutation] for x in batch]
    loss = clipped_policy_loss(*batch, **EPSILONS).per_token_loss
    assert torch.equal(clipped_policy_loss(*shuffled, **EPSILONS).per_token_loss, loss[permutation])


@quick
@given(batch=batches())
def test_clipped_policy_loss_extra_padding_adds_zeros_only(batch):
    logps, old_logps, advantages, action_mask = (
        padded(x, False if x.dtype == torch.bool else NAN) for x in batch
    )
    loss = clipped_policy_loss(logps, old_logps, advantages, action_mask, **EPSILONS)
    short_loss = clipped_policy_loss(*batch, **EPSILONS)
    for wide, short in zip(loss, short_loss, strict=True):
        assert torch.equal(wide, padded(short, 0))


def test_clipped_policy_loss_wrong_arguments_raise():
    x, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"`epsilon_high` must be at least 0, got -0.1"):
        clipped_policy_loss(x, x, x, mask, epsilon_low=0.2, epsilon_high=-0.1)
    with pytest.raises(ValueError, match="`epsilon_low` must be at least 0, got nan"):
        clipped_policy_loss(x, x, x, mask, epsilon_low=NAN, epsilon_high=0.2)
    with pytest.raises(TypeError, match=r"`action_mask` must be a bool tensor, got torch.float32"):
        clipped_policy_loss(x, x, x, mask.float(), **EPSILONS)
    with pytest.raises(TypeError, match="`old_logps` must be a floating tensor"):
        clipped_policy_loss(x, x.long(), x, mask, **EPSILONS)
    with pytest.raises(ValueError, match=r"`action_mask` must have shape `\(B, T\)`, got \(2,\)"):
        clipped_policy_loss(x[:, 0], x[:, 0], x[:, 0], mask[:, 0], **EPSILONS)


@pytest.mark.parametrize("shape", [(3,), (2, 1), ()])
def test_clipped_policy_loss_advantages_of_other_shape_raise(shape):
    x, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="`advantages` must have the shape"):
        clipped_policy_loss(x, x, torch.zeros(shape), mask, **EPSILONS)
