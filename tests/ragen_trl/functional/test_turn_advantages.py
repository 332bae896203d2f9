import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.functional import (
    discounted_turn_returns,
    gigpo_advantages,
    group_advantages,
    rebn_advantages,
    turns_to_tokens,
)
from tests.reference import turn_advantages as reference
from tests.reference.batches import GARBAGE

quick = settings(derandomize=True, max_examples=40, deadline=None)
# Rows of (reward, observation) turns, each with a group.
rows_of_turns = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(-8, 8).map(lambda n: n / 4), st.integers(0, 2)), max_size=4),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=7,
)


def ragged(rows, *, fill=math.nan, dtype=torch.float64):
    """Pad lists of numbers; returns them and which of them exist."""
    width = max(len(row) for row in rows) + 1
    numbers = torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=dtype)
    return numbers, torch.arange(width) < torch.tensor([len(row) for row in rows]).unsqueeze(1)


def tensors(rows, garbage=math.nan):
    """Lay out rewards, mask, observations and groups; ids are neither small nor in order."""
    turn_rewards, turn_mask = ragged([[r for r, _ in turns] for turns, _ in rows], fill=garbage)
    observation_ids, _ = ragged(
        [[(2**40, -9, 4)[o] for _, o in turns] for turns, _ in rows], fill=4, dtype=torch.long
    )
    group_ids = torch.tensor([(7, -3, 100)[group] for _, group in rows])
    return turn_rewards, turn_mask, observation_ids, group_ids


def existing(x, turn_mask):
    return [row[mask].tolist() for row, mask in zip(x, turn_mask, strict=True)]


def test_discounted_turn_returns_hand_worked():
    # 4; 2 + 0.5 * 4 = 4; 1 + 0.5 * 4 = 3. The second row ends a turn earlier.
    turn_rewards, turn_mask = ragged([[1.0, 2.0, 4.0], [0.0, -1.0]])
    returns = discounted_turn_returns(turn_rewards, turn_mask, gamma=0.5)
    assert returns.tolist() == [[3.0, 4.0, 4.0, 0.0], [-0.5, -1.0, 0.0, 0.0]]


@pytest.mark.parametrize("gamma", [0.0, 0.95, 1.0])
@quick
@given(rows=rows_of_turns)
def test_discounted_turn_returns_equal_definition(gamma, rows):
    turn_rewards, turn_mask, _, _ = tensors(rows)
    expected = reference.discounted_returns([[r for r, _ in turns] for turns, _ in rows], gamma)
    returns = discounted_turn_returns(turn_rewards, turn_mask, gamma=gamma)
    for numbers, definition in zip(existing(returns, turn_mask), expected, strict=True):
        assert numbers == pytest.approx(definition, abs=1e-12)
    assert returns[~turn_mask].eq(0).all()


# Group 0: two trajectories of returns 1 and 2; both saw observation 7, the first of them twice.
# Group 5 saw 7 as well, and that must not matter.
TURN_REWARDS = [[0.0, 0.0, 1.0], [0.0, 2.0], [40.0, 0.0], [0.0]]
OBSERVATION_IDS = [[7, 8, 7], [7, 9], [7, 3], [3]]
GROUP_IDS = torch.tensor([0, 0, 5, 5])


def gigpo_example(**scalars):
    turn_rewards, turn_mask = ragged(TURN_REWARDS)
    observation_ids, _ = ragged(OBSERVATION_IDS, fill=7, dtype=torch.long)
    return gigpo_advantages(
        turn_rewards, turn_mask, observation_ids, GROUP_IDS, gamma=0.5, **scalars
    )


def test_gigpo_advantages_hand_worked():
    # Returns from the turn on: 0.25, 0.5, 1 and 1, 2. Those at 7 are 0.25, 1 and 1, mean 0.75:
    # steps -0.5, (8: alone) 0, 0.25 and 0.25, (9: alone) 0. Episodes: 1 and 2, so -0.5 and 0.5.
    # Group 5: 7 was seen once; 3 twice, before 0 each time. Episodes: 40 and 0, so 20 and -20.
    advantages = gigpo_example(normalize_by_std=False)
    assert advantages.tolist() == [
        [-1.0, -0.5, -0.25, 0.0],
        [0.75, 0.5, 0.0, 0.0],
        [20.0, 20.0, 0.0, 0.0],
        [-20.0, 0.0, 0.0, 0.0],
    ]


def test_gigpo_advantages_step_weight_scales_the_steps_alone():
    advantages = gigpo_example(normalize_by_std=False, step_weight=2.0)
    assert advantages[:2].tolist() == [[-1.5, -0.5, 0.0, 0.0], [1.0, 0.5, 0.0, 0.0]]
    advantages = gigpo_example(normalize_by_std=False, step_weight=0.0)
    assert advantages[:2].tolist() == [[-0.5, -0.5, -0.5, 0.0], [0.5, 0.5, 0.0, 0.0]]


def test_gigpo_advantages_std_divides_the_episodes_alone():
    # Sample std of 1 and 2: sqrt(0.5).
    advantages = gigpo_example(normalize_by_std=True, eps=0.25)
    episode = 0.5 / (math.sqrt(0.5) + 0.25)
    assert advantages[0, :3].tolist() == pytest.approx(
        [-episode - 0.5, -episode, -episode + 0.25], abs=1e-12
    )
    assert advantages[1, :2].tolist() == pytest.approx([episode + 0.25, episode], abs=1e-12)


@pytest.mark.parametrize("normalize_by_std", [True, False])
@pytest.mark.parametrize(("gamma", "step_weight"), [(0.95, 1.0), (1.0, 0.3), (0.0, 2.0)])
@quick
@given(rows=rows_of_turns, garbage=st.sampled_from(GARBAGE))
def test_gigpo_advantages_equal_definition(normalize_by_std, gamma, step_weight, rows, garbage):
    turn_rewards, turn_mask, observation_ids, group_ids = tensors(rows, garbage)
    scalars = {"gamma": gamma, "step_weight": step_weight, "normalize_by_std": normalize_by_std}
    expected = reference.gigpo(
        [[r for r, _ in turns] for turns, _ in rows],
        [[o for _, o in turns] for turns, _ in rows],
        [group for _, group in rows],
        eps=1e-4,
        **scalars,
    )
    advantages = gigpo_advantages(turn_rewards, turn_mask, observation_ids, group_ids, **scalars)
    for numbers, definition in zip(existing(advantages, turn_mask), expected, strict=True):
        assert numbers == pytest.approx(definition, abs=1e-9)
    assert advantages[~turn_mask].eq(0).all()


@pytest.mark.parametrize("normalize_by_std", [True, False])
def test_gigpo_advantages_of_different_observations_are_group_advantages(normalize_by_std):
    turn_rewards, turn_mask = ragged(TURN_REWARDS)
    observation_ids = torch.arange(turn_mask.numel()).view(turn_mask.shape)
    advantages = gigpo_advantages(
        turn_rewards, turn_mask, observation_ids, GROUP_IDS, normalize_by_std=normalize_by_std
    )
    kind = "grpo" if normalize_by_std else "dr_grpo"
    episodes = group_advantages(torch.tensor([1.0, 2.0, 40.0, 0.0]).double(), GROUP_IDS, kind=kind)
    assert torch.equal(advantages, torch.where(turn_mask, episodes.unsqueeze(1), 0.0))


def test_gigpo_advantages_returns_equal_up_to_rounding_are_exactly_zero():
    # 0.1 + 0.2 is not 0.3 in float64, and no digit of that may become an advantage.
    assert 0.1 + 0.2 != 0.3
    turn_rewards, turn_mask = ragged([[0.1, 0.2], [0.3]])
    observation_ids = torch.tensor([[1, 2, 1], [1, 1, 1]])
    advantages = gigpo_advantages(
        turn_rewards, turn_mask, observation_ids, torch.tensor([0, 0]), gamma=1.0, eps=0.0
    )
    assert advantages.tolist() == [[0.0] * 3] * 2


def test_gigpo_advantages_row_without_turns_is_a_member_of_its_group():
    turn_rewards, turn_mask = ragged([[], [1.0]])
    advantages = gigpo_advantages(
        turn_rewards,
        turn_mask,
        torch.zeros(2, 2).long(),
        torch.tensor([0, 0]),
        normalize_by_std=False,
    )
    assert advantages.tolist() == [[0.0, 0.0], [0.5, 0.0]]


@quick
@given(rows=rows_of_turns, order=st.randoms(use_true_random=False))
def test_turn_advantages_permuted_rows_are_permuted(rows, order):
    permutation = list(range(len(rows)))
    order.shuffle(permutation)
    before, after = tensors(rows), tensors([rows[i] for i in permutation])
    gigpo = gigpo_advantages(*before)[permutation]
    assert torch.equal(gigpo_advantages(*after), gigpo)
    rebn = rebn_advantages(*before[:2], gamma=0.9)[permutation]
    assert torch.equal(rebn_advantages(*after[:2], gamma=0.9), rebn)


def test_turn_advantages_reward_of_the_last_turn_reaches_the_first():
    turn_rewards, turn_mask = ragged([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    observation_ids, group_ids = torch.zeros(2, 4).long(), torch.tensor([0, 0])
    returns = discounted_turn_returns(turn_rewards, turn_mask, gamma=0.5)
    assert returns[:, 0].tolist() == [0.25, 0.0]
    # Six returns of the same place, 0.25, 0.5, 1 and three times 0: mean 1.75 / 6.
    step = gigpo_advantages(turn_rewards, turn_mask, observation_ids, group_ids, gamma=0.5)
    step = step - gigpo_advantages(
        turn_rewards, turn_mask, observation_ids, group_ids, step_weight=0.0
    )
    assert step[:, 0].tolist() == pytest.approx([0.25 - 1.75 / 6, -1.75 / 6], abs=1e-12)
    rebn = rebn_advantages(turn_rewards, turn_mask, gamma=0.5)
    assert rebn[0, 0] > rebn[1, 0]


def test_rebn_advantages_hand_worked():
    # Returns 2 + 0.5 * 0 = 2, then 0, then 1 in the other row: mean 1, sample std 1.
    turn_rewards, turn_mask = ragged([[2.0, 0.0], [1.0]])
    advantages = rebn_advantages(turn_rewards, turn_mask, gamma=0.5, eps=0.25)
    assert advantages.tolist() == [[0.8, -0.8, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("gamma", [0.0, 0.95, 1.0])
@quick
@given(rows=rows_of_turns, garbage=st.sampled_from(GARBAGE))
def test_rebn_advantages_equal_definition(gamma, rows, garbage):
    turn_rewards, turn_mask, _, _ = tensors(rows, garbage)
    rewards = [[r for r, _ in turns] for turns, _ in rows]
    expected = reference.rebn(rewards, gamma, 1e-8)
    advantages = rebn_advantages(turn_rewards, turn_mask, gamma=gamma)
    for numbers, definition in zip(existing(advantages, turn_mask), expected, strict=True):
        assert numbers == pytest.approx(definition, abs=1e-9)
    assert advantages[~turn_mask].eq(0).all()


@pytest.mark.parametrize("reward", [0.15, -0.1, 10.9])
def test_rebn_advantages_of_equal_returns_are_exactly_zero(reward):
    turn_rewards = torch.full((16, 1), reward)
    turn_mask = torch.ones(16, 1, dtype=torch.bool)
    assert rebn_advantages(turn_rewards, turn_mask, gamma=1.0).tolist() == [[0.0]] * 16
    # A negative control: one turn that earned more is told apart.
    turn_rewards[3] += 0.01
    assert rebn_advantages(turn_rewards, turn_mask, gamma=1.0)[3].item() > 3


@pytest.mark.parametrize("shape", [(0, 0), (0, 2), (2, 0), (2, 3)])
def test_turn_advantages_without_any_turn_are_zero(shape):
    turn_rewards, turn_mask = torch.full(shape, math.nan), torch.zeros(shape, dtype=torch.bool)
    observation_ids, group_ids = torch.zeros(shape).long(), torch.arange(shape[0])
    expected = torch.zeros(shape).tolist()
    assert discounted_turn_returns(turn_rewards, turn_mask, gamma=1.0).tolist() == expected
    assert rebn_advantages(turn_rewards, turn_mask, gamma=1.0).tolist() == expected
    advantages = gigpo_advantages(turn_rewards, turn_mask, observation_ids, group_ids)
    assert advantages.tolist() == expected


def test_turns_to_tokens_hand_worked():
    turn_values = torch.tensor([[0.5, 2.0, math.nan], [-1.0, math.inf, 3.0]])
    turn_index = torch.tensor([[-1, 0, 0, -1, 1], [2, 0, -1, -1, -1]])
    tokens = turns_to_tokens(turn_values, turn_index)
    assert tokens.tolist() == [[0.0, 0.5, 0.5, 0.0, 2.0], [3.0, -1.0, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize(("num_turns", "num_tokens"), [(0, 3), (2, 0), (0, 0)])
def test_turns_to_tokens_without_turns_or_tokens_is_zero(num_turns, num_tokens):
    turn_index = torch.full((2, num_tokens), -1)
    tokens = turns_to_tokens(torch.ones(2, num_turns), turn_index)
    assert tokens.tolist() == [[0.0] * num_tokens] * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_turn_advantages_come_back_in_the_dtype_of_the_rewards(dtype):
    turn_rewards, turn_mask = ragged([[1.0, 2.0], [0.0]], dtype=dtype)
    turn_rewards.requires_grad_()
    ids = torch.zeros(2, 3).long(), torch.tensor([0, 0])
    for x in (
        discounted_turn_returns(turn_rewards, turn_mask, gamma=0.5),
        gigpo_advantages(turn_rewards, turn_mask, *ids),
        rebn_advantages(turn_rewards, turn_mask, gamma=0.5),
    ):
        assert x.dtype == dtype
        assert not x.requires_grad
    assert turns_to_tokens(turn_rewards, torch.zeros(2, 1).long()).dtype == dtype


def test_turn_advantages_wrong_turns_raise():
    turn_rewards, turn_mask = ragged([[1.0, 2.0], [0.0]])
    ids = torch.zeros(2, 3).long(), torch.tensor([0, 0])
    for call in (
        lambda rewards, mask, gamma=1.0: discounted_turn_returns(rewards, mask, gamma=gamma),
        lambda rewards, mask, gamma=1.0: gigpo_advantages(rewards, mask, *ids, gamma=gamma),
        lambda rewards, mask, gamma=1.0: rebn_advantages(rewards, mask, gamma=gamma),
    ):
        with pytest.raises(ValueError, match="`turn_rewards` must be finite, got nan"):
            call(turn_rewards, turn_mask | True)
        with pytest.raises(ValueError, match=r"`gamma` must be in \[0, 1\], got 2"):
            call(turn_rewards, turn_mask, gamma=2)
        with pytest.raises(ValueError, match=r"`turn_mask` must have shape `\(B, K\)`, got \(2,\)"):
            call(turn_rewards[:, 0], turn_mask[:, 0])
        with pytest.raises(ValueError, match="`turn_rewards` must have the shape of `turn_mask`"):
            call(turn_rewards[:1], turn_mask)
        with pytest.raises(TypeError, match=r"`turn_mask` must be a bool tensor, got torch.int64"):
            call(turn_rewards, turn_mask.long())


def test_gigpo_advantages_wrong_ids_and_scalars_raise():
    turn_rewards, turn_mask = ragged([[1.0, 2.0], [0.0]])
    observation_ids, group_ids = torch.zeros(2, 3).long(), torch.tensor([0, 0])
    with pytest.raises(ValueError, match="`step_weight` must be at least 0, got -1"):
        gigpo_advantages(turn_rewards, turn_mask, observation_ids, group_ids, step_weight=-1.0)
    with pytest.raises(ValueError, match="`eps` must be at least 0, got -1"):
        gigpo_advantages(turn_rewards, turn_mask, observation_ids, group_ids, eps=-1.0)
    with pytest.raises(
        TypeError, match=r"`observation_ids` must be a long tensor, got torch.int32"
    ):
        gigpo_advantages(turn_rewards, turn_mask, observation_ids.int(), group_ids)
    with pytest.raises(ValueError, match=r"`observation_ids` must have shape \(2, 3\) to fit"):
        gigpo_advantages(turn_rewards, turn_mask, observation_ids[:, :2], group_ids)
    with pytest.raises(ValueError, match=r"`group_ids` must have shape \(2,\) to fit"):
        gigpo_advantages(turn_rewards, turn_mask, observation_ids, group_ids[:1])


def test_turns_to_tokens_wrong_arguments_raise():
    turn_values, turn_index = torch.zeros(1, 2), torch.tensor([[-1, 0, 1]])
    with pytest.raises(ValueError, match=r"`turn_index` must be in \[-1, 2\), got 2"):
        turns_to_tokens(turn_values, turn_index + 1)
    with pytest.raises(ValueError, match=r"`turn_index` must be in \[-1, 2\), got -2"):
        turns_to_tokens(turn_values, turn_index - 1)
    with pytest.raises(TypeError, match="`turn_index` must be a long tensor"):
        turns_to_tokens(turn_values, turn_index.float())
    with pytest.raises(TypeError, match="`turn_values` must be a floating tensor"):
        turns_to_tokens(turn_values.long(), turn_index)
    with pytest.raises(ValueError, match=r"shapes `\(B, K\)` and `\(B, T\)`, got \(1, 2\) and \(2"):
        turns_to_tokens(turn_values, turn_index.expand(2, 3))
