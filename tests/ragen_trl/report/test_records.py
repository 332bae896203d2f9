import pytest

from ragen_trl.report.records import is_episode

TURN = {
    "observation": "State:\nP_G",
    "reply": "<answer>Right</answer>",
    "state": "P_G",
    "actions": ["Right"],
    "executed_actions": ["Right"],
    "is_valid": True,
    "reward": 0.5,
    "format_penalty": 0,
    "action_tokens": 4,
}
EPISODE = {
    "iteration": 3,
    "step": 3,
    "is_kept": False,
    "group_score": 0.5,
    "advantages": [0.5, None],
    "env_id": "ragen/FrozenLake-v0",
    "seed": 7,
    "group_id": 0,
    "total_reward": 0.5,
    "success": True,
    "truncated": False,
    "action_tokens": 4,
    "final_state": "__P",
    "turns": [TURN],
}
NEEDED = ("env_id", "seed", "group_id", "success", "turns")
WRONG = {
    "iteration": ["3", 2.5, [3], 10**400],
    "step": ["3", 2.5, {}],
    "is_kept": ["yes", [], 0.5],
    "group_score": ["0.5", True, 10**400],
    "advantages": [5, "x", {"0": 1.0}, [[0.5]], ["0.5"]],
    "env_id": [None, 3, []],
    "seed": [None, "7", 7.5, [7], 10**400],
    "group_id": [None, {}, 0.5],
    "total_reward": ["0.5", True, 10**400],
    "success": [None, "yes", 0.5, [True]],
    "truncated": ["no", 0.5],
    "action_tokens": [[4], "4"],
    "final_state": [3, ["__P"]],
    "turns": [None, "turns", {}, [None], [[TURN]]],
}
WRONG_IN_TURN = {
    "observation": [None, 3],
    "reply": [None, ["Right"]],
    "state": [5, ["P_G"], {}],
    "actions": ["Right", 3, [3], [["Right"]]],
    "executed_actions": [3, [None]],
    "is_valid": ["yes", 0.5],
    "reward": ["0.5", [0.5], 10**400],
    "format_penalty": ["0", {}],
    "action_tokens": [[4], 0.5],
}


def listed(wrong):
    return [(name, value) for name, values in wrong.items() for value in values]


def test_tables_name_every_field():
    assert (set(WRONG), set(WRONG_IN_TURN)) == (set(EPISODE), set(TURN))


def test_whole_episode():
    assert is_episode(EPISODE)
    assert is_episode(EPISODE | {"turns": []})


@pytest.mark.parametrize("name", EPISODE)
def test_episode_that_lacks_a_field_is_one_if_older_versions_wrote_none(name):
    rest = {key: value for key, value in EPISODE.items() if key != name}
    assert is_episode(EPISODE | {name: None}) == (name not in NEEDED)
    assert is_episode(rest) == (name not in (*NEEDED, "total_reward"))


@pytest.mark.parametrize("name", TURN)
def test_turn_that_lacks_a_field_is_one_if_it_has_its_texts(name):
    rest = {key: value for key, value in TURN.items() if key != name}
    for turn in (rest, TURN | {name: None}):
        assert is_episode(EPISODE | {"turns": [turn]}) == (name not in ("observation", "reply"))


@pytest.mark.parametrize(("name", "value"), listed(WRONG), ids=repr)
def test_episode_with_a_field_of_another_type_is_none(name, value):
    assert not is_episode(EPISODE | {name: value})


@pytest.mark.parametrize(("name", "value"), listed(WRONG_IN_TURN), ids=repr)
def test_turn_with_a_field_of_another_type_makes_the_episode_none(name, value):
    assert not is_episode(EPISODE | {"turns": [TURN, TURN | {name: value}]})
