import dataclasses
import json

import numpy as np
import pytest

from ragen_trl.trajectory import Trajectory, Turn


def make_turn(reply, *, is_valid=True):
    return Turn("board", reply, ("Up", "Down"), ("Up",), is_valid)


def make_trajectory(**changes):
    fields = {
        "env_id": "lake",
        "seed": 5,
        "group_id": 2,
        "prompt_ids": [1, 2, 3],
        "completion_ids": [10, 11, 50, 12],
        "action_mask": [True, True, False, True],
        "turn_index": [0, 0, -1, 1],
        "logps": [-0.5, -1.5, 0.0, -0.25],
        "turn_rewards": [0.5, -2.0],
        "format_penalties": [0.0, -0.1],
        "terminated": True,
        "truncated": False,
        "success": False,
        "turns": [make_turn("a"), make_turn("b", is_valid=False)],
        "num_effective_actions": 3,
        "final_state": "end",
    }
    return Trajectory(**(fields | changes))


def test_trajectory_total_reward_adds_rewards_and_penalties():
    assert make_trajectory().total_reward == pytest.approx(-1.6)  # 0.5 - 2.0 + 0.0 - 0.1


def test_trajectory_without_turns_is_worth_nothing():
    empty = make_trajectory(
        completion_ids=[],
        action_mask=[],
        turn_index=[],
        logps=[],
        turn_rewards=[],
        format_penalties=[],
        turns=[],
    )
    assert (empty.total_reward, empty.num_action_tokens) == (0.0, 0)
    assert all(array.shape == (0,) for array in empty.arrays().values())
    assert empty.to_record()["turns"] == []


def test_trajectory_num_action_tokens_counts_the_mask():
    assert make_trajectory().num_action_tokens == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"completion_ids": [10, 11, 50]},
        {"action_mask": [True] * 5},
        {"turn_index": [0, 0, -1]},
        {"logps": []},
        {"turn_rewards": [0.5]},
        {"format_penalties": [0.0, 0.0, 0.0]},
        {"turns": []},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_trajectory_with_fields_of_different_lengths_raises(changes):
    with pytest.raises(ValueError, match="per-token fields must have one length"):
        make_trajectory(**changes)


def test_trajectory_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_trajectory().seed = 1


def test_trajectory_arrays_hold_the_fields_in_fixed_types():
    arrays = make_trajectory().arrays()
    assert {name: array.dtype for name, array in arrays.items()} == {
        "completion_ids": np.int64,
        "action_mask": np.bool_,
        "turn_index": np.int64,
        "logps": np.float32,
    }
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "completion_ids": [10, 11, 50, 12],
        "action_mask": [True, True, False, True],
        "turn_index": [0, 0, -1, 1],
        "logps": [-0.5, -1.5, 0.0, -0.25],
    }


def test_trajectory_record_holds_counts_instead_of_tokens():
    record = make_trajectory().to_record()
    turns = record.pop("turns")
    assert record == {
        "env_id": "lake",
        "seed": 5,
        "group_id": 2,
        "total_reward": pytest.approx(-1.6),
        "success": False,
        "terminated": True,
        "truncated": False,
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "action_tokens": 3,
        "final_state": "end",
    }
    assert turns[1] == {
        "observation": "board",
        "reply": "b",
        "actions": ("Up", "Down"),
        "executed_actions": ("Up",),
        "is_valid": False,
        "state": "",
        "reward": -2.0,
        "format_penalty": -0.1,
        "action_tokens": 1,
    }
    assert [turn["action_tokens"] for turn in turns] == [2, 1]
    assert json.loads(json.dumps(make_trajectory().to_record()))["turns"][0]["reply"] == "a"


def test_trajectory_rewards_by_turn_hold_the_penalties():
    # Rewards 0.5 and -2.0, penalties 0.0 and -0.1.
    assert make_trajectory().rewards_by_turn == pytest.approx([0.5, -2.1])


def test_turn_state_is_empty_where_none_is_given():
    assert make_turn("a").state == ""
    assert Turn("Board: x", "a", (), (), True, "x").state == "x"
