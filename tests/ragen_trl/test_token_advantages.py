import math

import pytest
import torch

from ragen_trl import StarPOConfig
from ragen_trl.collation import Row, collate
from ragen_trl.token_advantages import add_token_advantages
from ragen_trl.update import build_micro_batches, starpo_loss
from tests.episodes import make_trajectory, make_turn
from tests.reference import gae as reference


@pytest.fixture
def make_args(tmp_path):
    return lambda **options: StarPOConfig(str(tmp_path), **options)


def make_row(seed, *, turns=2, scale=1.0):
    """A random episode of so many turns, each of 1 to 3 sampled tokens behind one another's words."""
    generator = torch.Generator().manual_seed(seed)
    mask, turn_index = [], []
    for turn in range(turns):
        for count, is_sampled in ((1 + seed % 3, True), (2, False)):
            mask += [is_sampled] * count
            turn_index += [turn if is_sampled else -1] * count
    rewards = torch.randn(turns, generator=generator).tolist()
    trajectory = make_trajectory(
        [1, 2], range(3, 3 + len(mask)), mask, turns=[make_turn()] * turns, turn_rewards=rewards
    )
    trajectory.turn_index[:] = turn_index
    return Row(trajectory, (0.0,) * turns, tuple(rewards), scale, weight=1.0)


def random_values(batch):
    generator = torch.Generator().manual_seed(int(batch["input_ids"].sum()))
    values = torch.randn(batch["action_mask"].shape, generator=generator)
    return torch.where(batch["action_mask"], values, math.nan)


def add(batches, args, gather=lambda x: x, values=random_values):
    add_token_advantages(batches, args, values=values, gather=gather)


def test_loss_of_gae_with_a_critic_that_is_right_by_hand(make_args):
    """Two episodes of two turns from one start; whether it is won shows after the first turn.

    Row A: tokens a1 a2 | what the environment says | a3, and a return of 1. Row B likewise, and 0.
    Both are as likely, so the right values are V(a1) = V(a2) = 1/2, and V(a3) = 1 in A, 0 in B.
    With gamma = lambda = 1, advantage = rest of the return - V:  A: 1/2 1/2 0   B: -1/2 -1/2 0.
    Whitened over the six sampled tokens: mean 0, variance (4 * 1/4) / 5 = 1/5, so 1/2 becomes
    u = 0.5 / sqrt(0.2).
    Ratios now: A: 3/2 1 1   B: 1/2 1 1. Clipped to [0.8, 1.28]:
    A: min(1.5 u, 1.28 u) + u + 0 = 2.28 u;  B: min(-0.5 u, -0.8 u) - u + 0 = -1.8 u.
    Loss: -(2.28 u - 1.8 u) / 6 = -0.08 u.
    """
    rows = []
    for reward in (1.0, 0.0):
        trajectory = make_trajectory(
            [1, 2],
            [3, 4, 5, 6, 7],
            [1, 1, 0, 0, 1],
            turns=[make_turn()] * 2,
            turn_rewards=[0.0, reward],
        )
        trajectory.turn_index[:] = [0, 0, -1, -1, 1]
        rows.append(Row(trajectory, (0.0, 0.0), (0.0, reward)))
    (batch,) = build_micro_batches(
        rows,
        loss_type="dapo",
        max_tokens=100,
        num_micro_batches=1,
        process_index=0,
        num_processes=1,
        pad_token_id=0,
        pad_to_multiple_of=None,
    )
    right = torch.tensor([[0.5, 0.5, 9.0, 9.0, 1.0], [0.5, 0.5, 9.0, 9.0, 0.0]])
    add([batch], make_args(), values=lambda _: right)
    u = 0.5 / math.sqrt(0.2)
    expected = torch.tensor([[u, u, 0.0, 0.0, 0.0], [-u, -u, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(batch["advantages"], expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        batch["returns"], torch.tensor([[1.0, 1.0, 0, 0, 1.0], [0.0] * 5]), rtol=0, atol=1e-6
    )
    ratios = torch.tensor([[1.5, 1.0, 7.0, 7.0, 1.0], [0.5, 1.0, 7.0, 7.0, 1.0]])
    batch["old_per_token_logps"] = torch.zeros(2, 5)
    loss, parts = starpo_loss(
        ratios.log(),
        torch.zeros(2, 5),
        batch,
        epsilon_low=0.2,
        epsilon_high=0.28,
        entropy_coef=0.0,
        beta=0.0,
    )
    assert loss.item() == pytest.approx(-0.08 * u, abs=1e-6)
    assert (parts.high_clipped.item(), parts.low_clipped.item()) == (1, 1)


@pytest.mark.parametrize("estimator", ["gae", "bi_level_gae"])
def test_advantages_are_those_of_the_oracle_but_for_shift_and_scale(estimator, make_args):
    options = {"gamma": 0.9, "gae_lambda": 0.8}
    args = make_args(advantage_estimator=estimator, turn_gamma=0.7, **options)
    batch = collate([make_row(seed) for seed in range(3)], pad_token_id=0)
    add([batch], args)
    mask = batch["action_mask"]
    expected = []
    for i in range(3):
        trajectory = [
            (r, v, k)
            for r, v, k, m in zip(
                batch["rewards"][i].tolist(),
                random_values(batch)[i].tolist(),
                batch["turn_index"][i].tolist(),
                mask[i].tolist(),
                strict=True,
            )
            if m
        ]
        turns = [
            [(r, v) for r, v, k in trajectory if k == turn]
            for turn in sorted({k for *_, k in trajectory})
        ]
        if estimator == "gae":
            advantages = reference.gae(turns, **options)
        else:
            advantages = reference.bi_level_gae(turns, turn_gamma=0.7, **options)
        expected += advantages
    raw = torch.tensor(expected, dtype=torch.float64)
    whitened = (raw - raw.mean()) / raw.std()
    torch.testing.assert_close(batch["advantages"][mask].double(), whitened, rtol=0, atol=1e-5)


def test_whitening_spans_all_batches_of_the_rollout(make_args):
    rows = [make_row(seed) for seed in range(4)]
    together = collate(rows, pad_token_id=0)
    apart = [collate([row], pad_token_id=0) for row in rows]

    def values_of_row(batch):
        # The same value at a token whatever its batch mates.
        tokens = batch["input_ids"][:, -batch["action_mask"].size(1) :]
        return torch.sin(tokens.float() + batch["rewards"].sum(1, keepdim=True))

    add([together], make_args(), values=values_of_row)
    add(apart, make_args(), values=values_of_row)
    for i, batch in enumerate(apart):
        width = batch["advantages"].size(1)
        torch.testing.assert_close(batch["advantages"][0], together["advantages"][i, :width])
    alone = [collate([rows[0]], pad_token_id=0)]
    add(alone, make_args(), values=values_of_row)
    assert not torch.allclose(alone[0]["advantages"], apart[0]["advantages"], atol=1e-2)


def test_two_processes_whiten_like_one(make_args):
    rows = [make_row(seed) for seed in range(4)]
    batches = [collate([row], pad_token_id=0) for row in rows]
    whole = [dict(batch) for batch in batches]
    add(whole, make_args())
    sent = []
    for own in (batches[:2], batches[2:]):
        add([dict(b) for b in own], make_args(), gather=lambda x: sent.append(x) or x)
    for own, expected in ((batches[:2], whole[:2]), (batches[2:], whole[2:])):
        add(own, make_args(), gather=lambda _: torch.cat(sent))
        for batch, other in zip(own, expected, strict=True):
            torch.testing.assert_close(batch["advantages"], other["advantages"])


def test_kl_in_the_reward_is_paid_at_every_sampled_token(make_args):
    # One turn of two tokens, return 1, values 0. k1 = logp - ref_logp: 0.5 and -0.25.
    # With a coefficient of 0.1 the rewards are -0.05 and 1 + 0.025, and the returns to go their sums.
    row = Row(make_trajectory([1], [2, 3], turn_rewards=[1.0]), (0.0,), (1.0,))
    batch = collate([row], pad_token_id=0)
    batch["old_per_token_logps"] = torch.tensor([[-1.0, -1.0]])
    batch["ref_per_token_logps"] = torch.tensor([[-1.5, -0.75]])
    add(
        [batch],
        make_args(kl_in_reward_coef=0.1),
        values=lambda b: torch.zeros_like(b["rewards"]),
    )
    assert batch["returns"].tolist() == [pytest.approx([0.975, 1.025])]


def test_soft_weights_multiply_after_the_whitening(make_args):
    plain = collate([make_row(0), make_row(1)], pad_token_id=0)
    soft = collate([make_row(0), make_row(1, scale=0.25)], pad_token_id=0)
    for batch in (plain, soft):
        add([batch], make_args())
    torch.testing.assert_close(soft["advantages"][0], plain["advantages"][0])
    torch.testing.assert_close(soft["advantages"][1], 0.25 * plain["advantages"][1])
    row = Row(make_trajectory([1], [2, 3]), (2.0,), (0.0,), 0.5)
    batch = collate([row], pad_token_id=0)
    add([batch], make_args(advantage_estimator="grpo"), values=None)
    assert batch["advantages"].tolist() == [[1.0, 1.0]]
    assert "old_values" not in batch


def test_a_batch_without_rows_has_no_part_in_it(make_args):
    batch, empty = collate([make_row(0)], pad_token_id=0), collate([], pad_token_id=0)
    alone = dict(batch)
    add([alone], make_args())
    add([batch, empty], make_args())
    torch.testing.assert_close(batch["advantages"], alone["advantages"])
    assert empty["advantages"].abs().sum() == 0
