import pytest
import torch
from hypothesis import given, settings

from ragen_trl.functional import clipped_policy_loss, row_weights
from tests.reference import losses as reference
from tests.reference.batches import batches

EPSILONS = {"epsilon_low": 0.2, "epsilon_high": 0.28}
WEIGHT_KINDS = ("token_mean", "trajectory_mean", "constant")
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
