"""Which lines of a file of episodes hold one that the report can show."""

from collections.abc import Callable, Mapping
from typing import Any

from ragen_trl.report.series import round_number


def is_episode(record: Mapping[str, Any]) -> bool:
    """Tell whether all that the report reads of a record can be read without asking again.

    Fields that older versions did not write may be missing, and null where a value is not known.
    """
    return _fits(record, _EPISODE, _EPISODE_MAY_LACK) and all(
        isinstance(turn, dict) and _fits(turn, _TURN, _TURN_MAY_LACK) for turn in record["turns"]
    )


def _fits(
    record: Mapping[str, Any],
    needed: Mapping[str, Callable[[Any], bool]],
    may_lack: Mapping[str, Callable[[Any], bool]],
) -> bool:
    return all(name in record and fits(record[name]) for name, fits in needed.items()) and all(
        record.get(name) is None or fits(record[name]) for name, fits in may_lack.items()
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_number(value: Any) -> bool:
    return round_number(value) is not None


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(map(_is_number_or_none, values))


_EPISODE = {
    "env_id": _is_text,
    "seed": _is_whole,
    "group_id": _is_whole,
    "total_reward": _is_number_or_none,  # null is what is written where it is not finite
    "success": _is_flag,
    "turns": _is_list,
}
_EPISODE_MAY_LACK = {
    "iteration": _is_whole,
    "step": _is_whole,
    "is_kept": _is_flag,
    "group_score": _is_number,
    "advantages": _are_numbers,
    "truncated": _is_flag,
    "action_tokens": _is_whole,
    "final_state": _is_text,
}
_TURN = {"observation": _is_text, "reply": _is_text}
_TURN_MAY_LACK = {
    "state": _is_text,
    "actions": _are_texts,
    "executed_actions": _are_texts,
    "is_valid": _is_flag,
    "reward": _is_number,
    "format_penalty": _is_number,
    "action_tokens": _is_whole,
}
