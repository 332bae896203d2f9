import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import compute_bi_level_gae, compute_gae
from tests.reference import gae as reference
from tests.reference.batches import GARBAGE
from tests.reference.turn_batches import lay_out, sampled, trajectory_lists

PLAIN = {"gamma": 0.99, "gae_lambda": 0.95}
BI_LEVEL = {"gamma": 0.99, "gae_lambda": 0.95, "turn_gamma": 0.9}
SETTINGS = [
    {"gamma": 1.0, "gae_lambda": 1.0, "turn_gamma": 0.95},
    {"gamma": 0.99, "gae_lambda": 0.95, "turn_gamma": 0.9},
    {"gamma": 0.5, "gae_lambda": 0.0, "turn_gamma": 1.0},
    {"gamma": 0.0, "gae_lambda": 1.0, "turn_gamma": 0.0},
]
# Two turns, of two tokens and of one: (reward, value) before and at the end of each turn.
TWO_TURNS = [[[(0.0, 1.0), (1.0, 2.0)], [(3.0, 4.0)]]]
# Turns of 3, 1 and 2 tokens beside a turn of one token and a row that sampled nothing.
RAGGED = [
    [[(0.1, 0.3), (0.0, -0.2), (1.0, 0.7)], [(0.0, 0.4)], [(0.0, 0.9), (-2.0, 0.6)]],
    [[(1.5, 0.25)]],
    [],
]
quick = settings(derandomize=True, max_examples=40, deadline=None)
estimators = pytest.mark.parametrize("estimator", ["gae", "bi_level_gae"])


def estimate(estimator, batch, **scalars):
    """Call either function; plain GAE takes neither turns nor their discount."""
    if estimator == "bi_level_gae":
        return compute_bi_level_gae(*batch, **{**BI_LEVEL, **scalars})
    scalars.pop("turn_gamma", None)
    return compute_gae(*batch[:3], **{**PLAIN, **scalars})


def expected_rows(estimator, rows, gamma, gae_lambda, turn_gamma):
    if estimator == "gae":
        return [reference.gae(row, gamma, gae_lambda) for row in rows]
    return [reference.bi_level_gae(row, gamma, gae_lambda, turn_gamma) for row in rows]


def test_compute_gae_two_turns_hand_worked():
    # V behind the end is 0 and gamma * lambda = 0.25.
    # delta_3 = 3 - 4 = -1,            A_3 = -1
    # delta_2 = 1 + 0.5 * 4 - 2 = 1,   A_2 = 1 - 0.25 = 0.75
    # delta_1 = 0 + 0.5 * 2 - 1 = 0,   A_1 = 0.25 * 0.75 = 0.1875
    batch = lay_out(TWO_TURNS)
    output = compute_gae(*batch[:3], gamma=0.5, gae_lambda=0.5)
    assert output.advantages.tolist() == [[0.0, 0.1875, 0.75, 0.0, -1.0, 0.0]]
    assert output.returns.tolist() == [[0.0, 1.1875, 2.75, 0.0, 3.0, 0.0]]


def test_compute_bi_level_gae_two_turns_hand_worked():
    # Turns end at V = 2 with reward 1 and at V = 4 with reward 3; turn_gamma * lambda = 0.125.
    # delta_2 = 3 - 4 = -1,             A_2 = -1,                   G_2 = 3
    # delta_1 = 1 + 0.25 * 4 - 2 = 0,   A_1 = 0.125 * -1 = -0.125,  G_1 = 1.875
    # Tokens of turn 2: 3 - 4 = -1. Tokens of turn 1, gamma * lambda = 0.25:
    # last: 1.875 - 2 = -0.125; first: 0 + 0.5 * 2 - 1 = 0, plus 0.25 * -0.125 = -0.03125.
    batch = lay_out(TWO_TURNS)
    output = compute_bi_level_gae(*batch, gamma=0.5, gae_lambda=0.5, turn_gamma=0.25)
    assert output.advantages.tolist() == [[0.0, -0.03125, -0.125, 0.0, -1.0, 0.0]]
    assert output.returns.tolist() == [[0.0, 0.96875, 1.875, 0.0, 3.0, 0.0]]


@estimators
@pytest.mark.parametrize("scalars", SETTINGS)
@quick
@given(rows=trajectory_lists())
def test_gae_equals_definition(estimator, scalars, rows):
    batch = lay_out(rows)
    advantages, returns = estimate(estimator, batch, **scalars)
    expected = expected_rows(estimator, rows, **scalars)
    values = [[value for turn in row for _, value in turn] for row in rows]
    for row in range(len(rows)):
        assert sampled(advantages, batch)[row] == pytest.approx(expected[row], abs=1e-9)
        assert sampled(returns, batch)[row] == pytest.approx(
            [a + v for a, v in zip(expected[row], values[row], strict=True)], abs=1e-9
        )
    assert advantages[~batch.action_mask].eq(0).all()
    assert returns[~batch.action_mask].eq(0).all()


@estimators
@pytest.mark.parametrize("scalars", SETTINGS)
@settings(derandomize=True, max_examples=15, deadline=None)
@given(rows=trajectory_lists(), garbage=st.sampled_from(GARBAGE), left=st.integers(0, 3))
def test_gae_observations_and_what_stands_there_change_nothing(
    estimator, scalars, rows, garbage, left
):
    short = lay_out(rows, observation_length=1, garbage=0.0)
    long = lay_out(rows, observation_length=200, garbage=garbage, left=left)
    for of_short, of_long in zip(
        estimate(estimator, short, **scalars), estimate(estimator, long, **scalars), strict=True
    ):
        # A wider row is added up in the same order, since sampled tokens stand together.
        assert sampled(of_long, long) == sampled(of_short, short)
        assert of_long[~long.action_mask].eq(0).all()


@estimators
def test_gae_unsampled_token_inside_of_a_reply_is_skipped(estimator):
    # A closing token that the limit cut off and the template added belongs to turn 0 all the same.
    batch = lay_out(TWO_TURNS, garbage=1e3)
    assert batch.action_mask[0].tolist() == [False, True, True, False, True, False]
    batch.turn_index[0, 3] = 0
    expected = estimate(estimator, lay_out(TWO_TURNS))
    assert estimate(estimator, batch).advantages.tolist() == expected.advantages.tolist()


@pytest.mark.parametrize("scalars", SETTINGS)
def test_gae_last_turn_that_earns_nothing_is_a_turn(scalars):
    # Reward 0 at the end of the last turn, where the value is 0.5: its advantage is -0.5.
    rows = [[[(0.0, 0.25), (1.0, 0.5)], [(0.0, 0.125), (0.0, 0.5)]]]
    batch = lay_out(rows)
    for estimator in ("gae", "bi_level_gae"):
        advantages = sampled(estimate(estimator, batch, **scalars).advantages, batch)[0]
        assert advantages[-1] == -0.5
        assert advantages == pytest.approx(expected_rows(estimator, rows, **scalars)[0], abs=1e-12)


def test_bi_level_gae_all_turns_earning_nothing_still_end():
    # Without rewards delta_k = turn_gamma * V_{k+1} - V_k: 0.5 * 4 - 1 = 1, then 0.5 * 2 - 4 = -3,
    # then -2; lambda 0 keeps them apart. Marks of rewards other than 0 would find no turn at all.
    batch = lay_out([[[(0.0, 1.0)], [(0.0, 4.0)], [(0.0, 2.0)]]])
    output = compute_bi_level_gae(*batch, gamma=1.0, gae_lambda=0.0, turn_gamma=0.5)
    assert sampled(output.advantages, batch) == [[1.0, -3.0, -2.0]]


@estimators
@pytest.mark.parametrize("scalars", SETTINGS)
def test_gae_single_token_turn_and_row_without_tokens(estimator, scalars):
    batch = lay_out(RAGGED)
    advantages, returns = estimate(estimator, batch, **scalars)
    expected = expected_rows(estimator, RAGGED, **scalars)
    for row, numbers in enumerate(sampled(advantages, batch)):
        assert numbers == pytest.approx(expected[row], abs=1e-12)
    assert sampled(advantages, batch)[1] == [1.25]
    assert sampled(returns, batch)[1] == [1.5]
    assert advantages[2].tolist() == [0.0] * advantages.shape[1]
    assert returns[2].tolist() == [0.0] * advantages.shape[1]


@estimators
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_gae_without_any_sampled_token_is_zero(estimator, shape):
    mask = torch.zeros(shape, dtype=torch.bool)
    garbage = torch.full(shape, math.nan)
    batch = (garbage, garbage, mask, torch.full(shape, -1))
    for x in estimate(estimator, batch):
        assert x.tolist() == torch.zeros(shape).tolist()


@pytest.mark.parametrize("scalars", SETTINGS[:2])
def test_gae_reward_of_the_last_turn_reaches_the_first(scalars):
    without = [[[(0.0, 0.5)] * 3, [(0.0, 0.5)] * 2, [(0.0, 0.5)] * 4]]
    paid = [[*without[0][:2], [*without[0][2][:-1], (1.0, 0.5)]]]
    decay = scalars["gamma"] * scalars["gae_lambda"]
    turn_decay = scalars["turn_gamma"] * scalars["gae_lambda"]
    batch = lay_out(paid, observation_length=5)
    for estimator, share in (
        # Eight tokens lie between the first and the last one.
        ("gae", decay**8),
        # Two turns up, and two tokens within the first turn.
        ("bi_level_gae", turn_decay**2 * decay**2),
    ):
        after = estimate(estimator, batch, **scalars).advantages
        before = estimate(estimator, lay_out(without, observation_length=5), **scalars).advantages
        first = sampled(after - before, batch)[0][0]
        assert first == pytest.approx(share, abs=1e-12)
        assert first > 0.5


@quick
@given(rows=trajectory_lists())
def test_compute_gae_without_discounts_is_return_to_go_minus_value(rows):
    batch = lay_out(rows)
    advantages, returns = compute_gae(*batch[:3], gamma=1.0, gae_lambda=1.0)
    for row, turns in enumerate(rows):
        tokens = [token for turn in turns for token in turn]
        to_go = [sum(reward for reward, _ in tokens[j:]) for j in range(len(tokens))]
        assert sampled(returns, batch)[row] == pytest.approx(to_go, abs=1e-9)
        assert sampled(advantages, batch)[row] == pytest.approx(
            [g - value for g, (_, value) in zip(to_go, tokens, strict=True)], abs=1e-9
        )


@quick
@given(rows=trajectory_lists())
def test_compute_gae_of_lambda_zero_is_the_one_step_error(rows):
    batch = lay_out(rows)
    advantages = compute_gae(*batch[:3], gamma=0.9, gae_lambda=0.0).advantages
    for row, turns in enumerate(rows):
        tokens = [*(token for turn in turns for token in turn), (0.0, 0.0)]
        errors = [
            reward + 0.9 * next_value - value
            for (reward, value), (_, next_value) in itertools.pairwise(tokens)
        ]
        assert sampled(advantages, batch)[row] == pytest.approx(errors, abs=1e-12)


@pytest.mark.parametrize("turn_gamma", [0.0, 0.6, 1.0])
@quick
@given(rows=trajectory_lists(max_turns=1))
def test_bi_level_gae_of_a_single_turn_is_gae_whatever_the_turn_discount(turn_gamma, rows):
    # One turn: A_1 = r - V, so that G_1 = A_1 + V = r is the reward that stood there before.
    batch = lay_out(rows)
    bi_level = compute_bi_level_gae(*batch, **PLAIN, turn_gamma=turn_gamma)
    plain = compute_gae(*batch[:3], **PLAIN)
    torch.testing.assert_close(bi_level, plain, rtol=0, atol=1e-12)


@quick
@given(rows=trajectory_lists(max_tokens=1))
def test_bi_level_gae_of_one_token_turns_is_gae_with_the_turn_discount(rows):
    batch = lay_out(rows)
    bi_level = compute_bi_level_gae(*batch, gamma=0.3, gae_lambda=0.9, turn_gamma=0.8)
    plain = compute_gae(*batch[:3], gamma=0.8, gae_lambda=0.9)
    torch.testing.assert_close(bi_level, plain, rtol=0, atol=1e-12)


@quick
@given(rows=trajectory_lists())
def test_bi_level_gae_without_discounts_is_gae_if_only_turn_ends_earn(rows):
    # Both are then the rewards to come minus the value. A reward before the last token of a turn
    # stays inside of that turn on the lower level, which is where the two differ.
    rows = [[[*((0.0, v) for _, v in turn[:-1]), turn[-1]] for turn in row] for row in rows]
    batch = lay_out(rows)
    bi_level = compute_bi_level_gae(*batch, gamma=1.0, gae_lambda=1.0, turn_gamma=1.0)
    plain = compute_gae(*batch[:3], gamma=1.0, gae_lambda=1.0)
    torch.testing.assert_close(bi_level, plain, rtol=0, atol=1e-12)


def test_bi_level_gae_reward_inside_of_a_turn_stays_there():
    with_bonus = [[[(1.0, 0.5)], [(0.7, 0.5), (0.0, 0.5)]]]
    without = [[[(1.0, 0.5)], [(0.0, 0.5), (0.0, 0.5)]]]
    batch = lay_out(with_bonus)
    difference = estimate("bi_level_gae", batch).advantages - (
        estimate("bi_level_gae", lay_out(without)).advantages
    )
    assert sampled(difference, batch)[0] == pytest.approx([0.0, 0.7, 0.0], abs=1e-12)


def positions_moved_by(estimator, batch, row, token):
    """Return the (row, token) positions whose advantage changes with one value."""
    moved = batch._replace(values=batch.values.clone())
    moved.values[row, token] += 1.0
    changed = estimate(estimator, moved).advantages != estimate(estimator, batch).advantages
    return {tuple(position) for position in changed.nonzero().tolist()}


def test_gae_value_leaks_neither_forwards_nor_into_other_rows():
    batch = lay_out(RAGGED, garbage=1e3)
    for row, token in batch.action_mask.nonzero().tolist():
        earlier = {(row, j) for j in range(token + 1) if batch.action_mask[row, j]}
        assert positions_moved_by("gae", batch, row, token) == earlier
    for row, token in (~batch.action_mask).nonzero().tolist():
        assert positions_moved_by("gae", batch, row, token) == set()


def test_bi_level_gae_value_leaks_into_earlier_turns_only_from_turn_ends():
    batch = lay_out(RAGGED, garbage=1e3)
    for row, token in batch.action_mask.nonzero().tolist():
        turn = batch.turn_index[row, token]
        is_turn_end = not (batch.turn_index[row, token + 1 :] == turn).any()
        reached = (
            batch.turn_index[row, : token + 1] <= turn
            if is_turn_end
            else (batch.turn_index[row, : token + 1] == turn)
        )
        expected = {(row, j) for j in range(token + 1) if batch.action_mask[row, j] and reached[j]}
        assert positions_moved_by("bi_level_gae", batch, row, token) == expected
    for row, token in (~batch.action_mask).nonzero().tolist():
        assert positions_moved_by("bi_level_gae", batch, row, token) == set()


@estimators
@pytest.mark.parametrize("num_tokens", [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33])
def test_gae_of_any_width_reaches_the_last_token(estimator, num_tokens):
    # A reward of 1 at the end of a single turn, no critic: A_j = decay ^ (tokens behind j).
    rewards, values = torch.zeros(2, 1, num_tokens, dtype=torch.float64)
    rewards[0, -1] = 1.0
    mask, turn_index = torch.ones(1, num_tokens) > 0, torch.zeros(1, num_tokens).long()
    output = estimate(estimator, (rewards, values, mask, turn_index))
    decay = 0.99 * 0.95
    expected = [decay ** (num_tokens - 1 - j) for j in range(num_tokens)]
    assert output.advantages[0].tolist() == pytest.approx(expected, abs=1e-12)


def test_compute_gae_of_thousands_of_tokens_loses_no_digit():
    # 3,000 rewards of 0.1 in float32: adding them up one by one in float32 is off by 1e-3.
    rewards, values = torch.full((1, 3000), 0.1), torch.zeros(1, 3000)
    output = compute_gae(rewards, values, values == 0, gamma=1.0, gae_lambda=1.0)
    assert output.returns.dtype == torch.float32
    assert output.returns[0, 0].item() == pytest.approx(3000 * rewards[0, 0].item(), abs=2e-5)


@estimators
def test_bi_level_gae_turn_numbers_may_be_left_out(estimator):
    batch = lay_out(RAGGED)
    spaced = batch._replace(
        turn_index=torch.where(batch.turn_index > 0, 3 * batch.turn_index + 4, batch.turn_index)
    )
    assert spaced.turn_index.max() == 10
    torch.testing.assert_close(
        estimate(estimator, spaced), estimate(estimator, batch), rtol=0, atol=0
    )


@estimators
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_gae_comes_back_in_the_dtype_of_the_values_without_gradient(estimator, dtype):
    batch = lay_out(TWO_TURNS, dtype=dtype)
    batch.values.requires_grad_()
    batch = batch._replace(rewards=batch.rewards.double())
    for x in estimate(estimator, batch):
        assert x.dtype == dtype
        assert not x.requires_grad


@estimators
def test_gae_does_not_change_its_inputs(estimator):
    batch = lay_out(RAGGED, garbage=7.0)
    before = [x.clone() for x in batch]
    estimate(estimator, batch)
    assert all(torch.equal(x, y) for x, y in zip(batch, before, strict=True))


@estimators
def test_gae_garbage_at_a_sampled_token_is_not_hidden(estimator):
    batch = lay_out(RAGGED)
    batch.values[0, batch.action_mask[0]] = math.nan
    advantages = estimate(estimator, batch).advantages
    assert advantages[0][batch.action_mask[0]].isnan().all()
    assert advantages[1].isfinite().all()


@estimators
def test_gae_wrong_arguments_raise(estimator):
    rewards, values, mask, turn_index = lay_out(TWO_TURNS, garbage=0.0)
    with pytest.raises(ValueError, match=r"`gamma` must be in \[0, 1\], got 1.5"):
        estimate(estimator, (rewards, values, mask, turn_index), gamma=1.5)
    with pytest.raises(ValueError, match=r"`gae_lambda` must be in \[0, 1\], got -0.1"):
        estimate(estimator, (rewards, values, mask, turn_index), gae_lambda=-0.1)
    with pytest.raises(
        ValueError, match=r"`values` must have the shape of `action_mask`, \(1, 6\)"
    ):
        estimate(estimator, (rewards, values[:, 1:], mask, turn_index))
    with pytest.raises(ValueError, match=r"`action_mask` must have shape `\(B, T\)`, got \(6,\)"):
        estimate(estimator, (rewards[0], values[0], mask[0], turn_index[0]))
    with pytest.raises(TypeError, match=r"`action_mask` must be a bool tensor, got torch.int64"):
        estimate(estimator, (rewards, values, mask.long(), turn_index))
    with pytest.raises(TypeError, match=r"`rewards` must be a floating tensor, got torch.int64"):
        estimate(estimator, (rewards.long(), values, mask, turn_index))


def test_compute_bi_level_gae_wrong_turns_raise():
    batch = lay_out(TWO_TURNS)
    with pytest.raises(ValueError, match=r"`turn_gamma` must be in \[0, 1\], got nan"):
        estimate("bi_level_gae", batch, turn_gamma=math.nan)
    with pytest.raises(TypeError, match=r"`turn_index` must be a long tensor, got torch.int32"):
        estimate("bi_level_gae", batch._replace(turn_index=batch.turn_index.int()))
    with pytest.raises(ValueError, match="`turn_index` must have the shape of `action_mask`"):
        estimate("bi_level_gae", batch._replace(turn_index=batch.turn_index[:, 1:]))
    turns = torch.tensor([[-1, 0, -1, -1, 1, -1]])
    with pytest.raises(ValueError, match="at least 0 at sampled tokens, got -1"):
        estimate("bi_level_gae", batch._replace(turn_index=turns))
    turns = torch.tensor([[-1, 0, 2, -1, 1, -1]])
    with pytest.raises(ValueError, match=r"must not fall .* got \[0, 2, 1\] in row 0"):
        estimate("bi_level_gae", batch._replace(turn_index=turns))
    # Tokens that were not sampled may have any turn.
    turns = torch.tensor([[5, 0, 0, 9, 1, -7]])
    assert torch.equal(
        estimate("bi_level_gae", batch._replace(turn_index=turns)).advantages,
        estimate("bi_level_gae", batch).advantages,
    )
