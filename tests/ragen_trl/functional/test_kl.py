import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import kl_k1, kl_k2, kl_k3
from tests.reference import losses as reference
from tests.reference.batches import GARBAGE, batches, padded

ESTIMATORS = (kl_k1, kl_k2, kl_k3)
POLICY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REF_POLICY = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
DIVERGENCE = sum(p * math.log(p / q) for p, q in zip([0.5, 0.3, 0.2], [0.2, 0.2, 0.6], strict=True))
quick = settings(derandomize=True, max_examples=30, deadline=None)
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def gradient(loss_fn, logps):
    logps = logps.clone().requires_grad_()
    loss_fn(logps).sum().backward()
    return logps.grad


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        # With L = ln 2 the log-ratios are -L, L, 0; the last token is not sampled.
        (kl_k1, lambda log_2: [-log_2, log_2, 0.0, 0.0]),
        (kl_k2, lambda log_2: [log_2**2 / 2, log_2**2 / 2, 0.0, 0.0]),
        # d = L: 2 - L - 1. d = -L: 0.5 + L - 1.
        (kl_k3, lambda log_2: [1 - log_2, log_2 - 0.5, 0.0, 0.0]),
    ],
)
def test_kl_hand_worked(estimator, expected):
    log_2 = math.log(2)
    logps = torch.tensor([[0.0, log_2, -1.0, 0.0]], dtype=torch.float64)
    ref_logps = torch.tensor([[log_2, 0.0, -1.0, 3.0]], dtype=torch.float64)
    kl = estimator(logps, ref_logps, torch.tensor([[True, True, True, False]]))
    assert kl.tolist()[0] == pytest.approx(expected(log_2), abs=1e-12)


@each_estimator
@quick
@given(batch=batches())
def test_kl_equals_definition(estimator, batch):
    logps, ref_logps, _, mask = batch
    expected = reference.kl(logps.tolist(), ref_logps.tolist(), mask.tolist(), estimator.__name__)
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(estimator(logps, ref_logps, mask), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("estimator", [kl_k1, kl_k3])
def test_kl_mean_over_the_policy_is_the_kl_divergence(estimator):
    kl = estimator(POLICY.log()[None], REF_POLICY.log()[None], torch.ones(1, 3, dtype=torch.bool))
    assert (kl[0] * POLICY).sum().item() == pytest.approx(DIVERGENCE, abs=1e-12)


def test_kl_k2_mean_over_the_policy_is_biased():
    # Negative control of the test above.
    kl = kl_k2(POLICY.log()[None], REF_POLICY.log()[None], torch.ones(1, 3, dtype=torch.bool))
    assert abs((kl[0] * POLICY).sum().item() - DIVERGENCE) > 0.004


@pytest.mark.parametrize(
    ("estimator", "is_gradient_of_the_divergence"), [(kl_k1, False), (kl_k2, True), (kl_k3, False)]
)
def test_kl_k2_alone_has_the_gradient_of_the_divergence(estimator, is_gradient_of_the_divergence):
    # Over all tokens of a softmax policy, each weighed by its probability held constant.
    logits = POLICY.log().requires_grad_()
    log_policy = logits.log_softmax(dim=0)
    divergence = (log_policy.exp() * (log_policy - REF_POLICY.log())).sum()
    (expected,) = torch.autograd.grad(divergence, logits, retain_graph=True)
    mask = torch.ones(1, 3, dtype=torch.bool)
    kl = estimator(log_policy[None], REF_POLICY.log()[None], mask)[0]
    (actual,) = torch.autograd.grad((POLICY * kl).sum(), logits)
    assert torch.allclose(actual, expected, rtol=0, atol=1e-12) is is_gradient_of_the_divergence


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        # d k1 / dlogp = 1. d k2 / dlogp = logp - ref = -ln 3. d k3 / dlogp = 1 - exp(ref - logp) = -2.
        (kl_k1, 1.0),
        (kl_k2, -math.log(3)),
        (kl_k3, -2.0),
    ],
)
def test_kl_gradient_reaches_the_policy_alone(estimator, expected):
    ref_logps = torch.tensor([[math.log(3)]], requires_grad=True)
    logps = torch.zeros(1, 1, requires_grad=True)
    estimator(logps, ref_logps, torch.tensor([[True]])).sum().backward()
    assert logps.grad.item() == pytest.approx(expected)
    assert ref_logps.grad is None


def test_kl_k3_of_close_policies_keeps_its_digits():
    # d^2 / 2 at d = 1e-4; exp(d) - d - 1 in float32 would be off by more than the result.
    kl = kl_k3(torch.zeros(1, 1), torch.full((1, 1), 1e-4), torch.tensor([[True]]))
    assert kl.item() == pytest.approx(5e-9, rel=1e-3)


@each_estimator
@pytest.mark.parametrize("garbage", GARBAGE)
@quick
@given(batch=batches())
def test_kl_garbage_at_unsampled_tokens_changes_nothing(estimator, garbage, batch):
    logps, ref_logps, _, mask = batch
    kl = estimator(logps, ref_logps, mask)
    grad = gradient(lambda x: estimator(x, ref_logps, mask), logps)
    dirty_logps = torch.where(mask, logps, garbage)
    dirty_ref_logps = torch.where(mask, ref_logps, garbage)
    for new, ref in ((dirty_logps, ref_logps), (logps, dirty_ref_logps)):
        assert torch.equal(estimator(new, ref, mask), kl)
        assert torch.equal(gradient(lambda x, ref=ref: estimator(x, ref, mask), new), grad)
    assert estimator is kl_k1 or (kl >= 0).all()
    assert not kl[~mask].any()


@each_estimator
@quick
@given(batch=batches(), order=st.randoms(use_true_random=False))
def test_kl_permuted_rows_and_padding_change_nothing_else(estimator, batch, order):
    logps, ref_logps, _, mask = batch
    permutation = list(range(len(logps)))
    order.shuffle(permutation)
    kl = estimator(logps, ref_logps, mask)
    shuffled = estimator(logps[permutation], ref_logps[permutation], mask[permutation])
    assert torch.equal(shuffled, kl[permutation])
    wide = estimator(padded(logps, math.nan), padded(ref_logps, math.nan), padded(mask, False))
    assert torch.equal(wide, padded(kl, 0.0))


@each_estimator
def test_kl_bfloat16_is_computed_in_float32(estimator):
    # The log-ratio lies half-way between two bfloat16 numbers; rounding it first would move k2 and k3.
    logps, ref_logps = torch.tensor([[[-0.1]], [[-0.25]]], dtype=torch.bfloat16)
    mask = torch.tensor([[True]])
    kl = estimator(logps, ref_logps, mask)
    assert kl.dtype == torch.bfloat16
    assert torch.equal(kl, estimator(logps.float(), ref_logps.float(), mask).bfloat16())


@each_estimator
def test_kl_wrong_arguments_raise(estimator):
    x, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"`ref_logps` must have the shape of `action_mask`"):
        estimator(x, x[:1], mask)
    with pytest.raises(TypeError, match="`logps` must be a floating tensor"):
        estimator(x.long(), x, mask)
    with pytest.raises(ValueError, match=r"`action_mask` must have shape `\(B, T\)`, got \(2,\)"):
        estimator(x[:, 0], x[:, 0], mask[:, 0])
