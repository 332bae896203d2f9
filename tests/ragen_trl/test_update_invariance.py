"""An update does not depend on how it is split, nor on tokens that nobody sampled."""

import math
import random
from dataclasses import replace

import pytest
import torch

from ragen_trl.collation import collate
from ragen_trl.update import (
    ROW_WEIGHT_KINDS,
    LossParts,
    build_micro_batches,
    starpo_loss,
    update_metrics,
)
from tests.episodes import make_row, make_trajectory
from tests.reference.batches import GARBAGE

PAD, VOCABULARY = 0, 11
SETTINGS = {"epsilon_low": 0.2, "epsilon_high": 0.28, "entropy_coef": 0.05, "beta": 0.1}
PLAIN = {"epsilon_low": 0.2, "epsilon_high": 0.28, "entropy_coef": 0.0, "beta": 0.0}

# --- The same update, however it is split -----------------------------------------------------


def make_policy(seed):
    """Two matrices: the next token depends on the sum of all tokens before it."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (VOCABULARY, 6), (6, VOCABULARY)
    return [
        torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes
    ]


def score(policy, batch):
    """Log-probabilities and entropies of the last T positions, as GRPOTrainer scores them."""
    ids, mask = batch["input_ids"], batch["attention_mask"]
    embedding, head = policy
    context = (embedding[ids] * mask.unsqueeze(-1)).cumsum(dim=1)
    distribution = torch.tanh(context[:, :-1]).matmul(head).log_softmax(dim=-1)
    kept = batch["action_mask"].size(1)
    logps = distribution.gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2)[:, -kept:]
    entropies = -(distribution.exp() * distribution).sum(dim=2)[:, -kept:]
    return logps, entropies


def make_rows(count, *, seed=0):
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        length = rng.randint(1, 14)
        mask = [rng.random() < 0.6 for _ in range(length - 1)] + [True]
        trajectory = make_trajectory(
            prompt_ids=[rng.randrange(1, VOCABULARY) for _ in range(rng.randint(1, 8))],
            completion_ids=[rng.randrange(1, VOCABULARY) for _ in range(length)],
            action_mask=mask,
            logps=[-2 * rng.random() if m else 0.0 for m in mask],
        )
        rows.append(make_row(trajectory, rng.uniform(-2, 2)))
    return rows


def split(rows, *, loss_type="dapo", loss_scale=1.0, micro_batches=1, processes=1, multiple=None):
    return [
        batch
        for index in range(processes)
        for batch in build_micro_batches(
            rows,
            loss_type=loss_type,
            loss_scale=loss_scale,
            max_tokens=20,
            num_micro_batches=micro_batches,
            process_index=index,
            num_processes=processes,
            pad_token_id=PAD,
            pad_to_multiple_of=multiple,
        )
    ]


def run_update(batches, settings=SETTINGS):
    """Add up loss, gradient and metrics over the micro-batches of all processes."""
    policy, old_policy, ref_policy = (make_policy(seed) for seed in (1, 2, 3))
    # Near the policy, so that some ratios are clipped and others are not.
    old_policy = [p.detach() + 0.05 * q.detach() for p, q in zip(policy, old_policy, strict=True)]
    sums = torch.zeros(len(LossParts._fields), dtype=torch.float64)
    loss_sum = 0.0
    for batch in batches:
        batch["old_per_token_logps"] = score(old_policy, batch)[0].detach()
        batch["ref_per_token_logps"] = score(ref_policy, batch)[0].detach()
        loss, parts = starpo_loss(*score(policy, batch), batch, **settings)
        loss.backward()
        loss_sum += loss.item()
        sums += torch.stack([part.double() for part in parts])
    gradient = torch.cat([parameter.grad.flatten() for parameter in policy])
    return loss_sum, gradient, update_metrics(sums.tolist(), has_reference=True)


def assert_same_update(one, other):
    assert one[0] == pytest.approx(other[0], rel=1e-12)
    torch.testing.assert_close(one[1], other[1], rtol=1e-10, atol=1e-14)
    assert one[2] == pytest.approx(other[2], rel=1e-6)


@pytest.mark.parametrize("loss_type", list(ROW_WEIGHT_KINDS))
@pytest.mark.parametrize(
    "how",
    [
        {"micro_batches": 4},
        {"micro_batches": 8},
        {"micro_batches": 3},
        {"processes": 2},
        {"processes": 2, "micro_batches": 2},
        {"processes": 3, "micro_batches": 4},  # some micro-batches are empty
        {"multiple": 32},
    ],
)
def test_update_loss_gradient_and_metrics_do_not_depend_on_the_split(loss_type, how):
    rows = make_rows(8)
    whole = run_update(split(rows, loss_type=loss_type))
    assert whole[1].abs().max() > 1e-3
    assert 0 < whole[2]["clip_ratio/region_mean"] < 1
    assert_same_update(run_update(split(rows, loss_type=loss_type, **how)), whole)


@pytest.mark.parametrize("loss_type", list(ROW_WEIGHT_KINDS))
@pytest.mark.parametrize("how", [{}, {"processes": 2, "micro_batches": 2}])
def test_update_loss_scale_multiplies_loss_and_gradient_however_it_is_split(loss_type, how):
    rows = make_rows(8)
    loss, gradient, metrics = run_update(split(rows, loss_type=loss_type))
    scaled = run_update(split(rows, loss_type=loss_type, loss_scale=0.5, **how))
    # A power of two: the weights, which are float32, are halved exactly.
    assert scaled[0] == pytest.approx(0.5 * loss, rel=1e-12)
    torch.testing.assert_close(scaled[1], 0.5 * gradient, rtol=1e-10, atol=1e-14)
    assert scaled[2]["policy_loss"] == pytest.approx(0.5 * metrics["policy_loss"], rel=1e-6)
    # Means over tokens are what they were.
    for name in ("entropy", "kl", "clip_ratio/region_mean", "sampling_logp_difference"):
        assert scaled[2][name] == pytest.approx(metrics[name], rel=1e-6)


def test_update_does_not_depend_on_the_order_of_the_rows():
    rows = make_rows(8)
    shuffled = random.Random(4).sample(rows, k=8)
    assert_same_update(run_update(split(shuffled, micro_batches=4)), run_update(split(rows)))


def test_update_averaging_each_micro_batch_by_itself_would_differ():
    # The negative control of the two tests above.
    rows = sorted(make_rows(8), key=lambda row: row.num_tokens)
    naive = [batch for i in range(0, 8, 2) for batch in split(rows[i : i + 2])]
    for batch in naive:
        batch["loss_weights"] /= 4
    loss, gradient, _ = run_update(naive)
    whole = run_update(split(rows))
    assert loss != pytest.approx(whole[0], rel=1e-2)
    assert (gradient - whole[1]).abs().max() > 1e-3


def test_update_rows_fewer_than_micro_batches_leave_empty_ones_without_effect():
    rows = make_rows(3)
    batches = split(rows, micro_batches=4, processes=2)
    assert len(batches) == 8
    empty = [batch for batch in batches if not batch["action_mask"].any()]
    assert len(empty) == 5
    loss, gradient, metrics = run_update(empty)
    assert loss == 0.0
    assert (gradient == 0).all()
    assert all(value == 0.0 for value in metrics.values())
    assert_same_update(run_update(batches), run_update(split(rows)))


def test_build_micro_batches_weighs_over_the_whole_update_not_over_the_share():
    rows = make_rows(8)
    num_tokens = sum(row.trajectory.num_action_tokens for row in rows)
    for index in (0, 1):
        (batch,) = build_micro_batches(
            rows,
            loss_type="dapo",
            max_tokens=20,
            num_micro_batches=1,
            process_index=index,
            num_processes=2,
            pad_token_id=PAD,
            pad_to_multiple_of=None,
        )
        assert batch["loss_weights"].tolist() == pytest.approx([1 / num_tokens] * 4)


# --- Tokens that the policy did not sample ----------------------------------------------------


def run_with_garbage(name, value):
    """One batch with both kinds of unsampled tokens, environment text and padding."""
    rows = make_rows(5, seed=2)
    batch = collate([replace(r, weight=0.1) for r in rows], pad_token_id=PAD)
    mask = batch["action_mask"]
    generator = torch.Generator().manual_seed(0)

    def draw():
        return torch.randn(mask.shape, generator=generator, dtype=torch.float64)

    tensors = {"logps": draw(), "entropies": draw().abs()}
    batch |= {
        "old_per_token_logps": tensors["logps"] + 0.3 * draw(),
        "ref_per_token_logps": draw(),
        "sampling_per_token_logps": draw(),
        "importance_weights": draw().abs(),
        "advantages": draw(),
    }
    if name is not None:
        holder = tensors if name in tensors else batch
        holder[name] = torch.where(mask, holder[name], value)
    leaves = [tensor.requires_grad_() for tensor in tensors.values()]
    loss, parts = starpo_loss(*leaves, batch, **SETTINGS)
    loss.backward()
    return mask, loss, torch.stack([leaf.grad for leaf in leaves]), parts


@pytest.mark.parametrize("value", GARBAGE)
@pytest.mark.parametrize(
    "name",
    [
        "logps",
        "entropies",
        "old_per_token_logps",
        "ref_per_token_logps",
        "sampling_per_token_logps",
        "importance_weights",
        "advantages",
    ],
)
def test_starpo_loss_garbage_at_unsampled_tokens_changes_nothing(name, value):
    mask, loss, gradients, parts = run_with_garbage(None, None)
    _, dirty_loss, dirty_gradients, dirty_parts = run_with_garbage(name, value)
    assert (~mask).sum() > 10
    assert dirty_loss.item() == loss.item()
    assert torch.equal(dirty_gradients, gradients)
    assert (dirty_gradients[:, ~mask] == 0).all()
    assert [part.item() for part in dirty_parts] == [part.item() for part in parts]


def test_starpo_loss_garbage_at_a_sampled_token_does_change_something():
    # The negative control: the garbage of the test above would be seen if it counted.
    mask, loss, _, _ = run_with_garbage(None, None)
    for value in GARBAGE:
        rows_with_garbage = torch.where(mask, value, torch.zeros(mask.shape, dtype=torch.float64))
        batch = {
            "action_mask": mask,
            "advantages": rows_with_garbage,
            "loss_weights": torch.full(mask.shape[:1], 0.1),
            "sampling_per_token_logps": torch.zeros(mask.shape),
        }
        zeros = torch.zeros(mask.shape, dtype=torch.float64)
        dirty, _ = starpo_loss(zeros, zeros, batch, **PLAIN)
        assert not math.isclose(dirty.item(), loss.item(), rel_tol=1e-3)
