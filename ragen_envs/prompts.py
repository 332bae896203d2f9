"""Wording of the messages that an agent reads; formatting only.

Messages are short and always built alike: on a small policy every word costs time.
"""

from collections.abc import Iterable

from ragen_envs.parsing import ParsedReply, format_reply

FREE_TEXT = "free text"
MALFORMED_NOTICE = "No legal action found in the last reply."
UNKNOWN_ACTION_NOTICE = "Unknown actions were skipped."


def write_first_message(
    task_description: str, state: str, request: str, *, max_actions_per_turn: int, separator: str
) -> str:
    """Write the message of a reset; a task description that is empty takes no line."""
    limit = "Each turn, reply with one action."
    if max_actions_per_turn > 1:
        limit = (
            f"Each turn, reply with at most {max_actions_per_turn} actions, "
            f"with {separator} between them."
        )
    head = f"{task_description}\n{limit}" if task_description else limit
    return f"{head}\nState:\n{state}\n{request}"


def write_turn_message(reward: float, reply: ParsedReply, state: str, request: str) -> str:
    """Write the message after a turn, with a notice if its reply was not valid."""
    notice = ""
    if not reply.is_valid:
        notice = f"{UNKNOWN_ACTION_NOTICE if reply.actions else MALFORMED_NOTICE}\n"
    return f"Reward: {format_reward(reward)}\n{notice}State:\n{state}\n{request}"


def write_last_message(reward: float, state: str) -> str:
    """Write the message after the last turn."""
    return f"Reward: {format_reward(reward)}\nState:\n{state}"


def write_request(
    action_names: Iterable[str] | None, *, turns_left: int, actions_left: int, reply_example: str
) -> str:
    """Write what may be done next; `action_names=None` stands for free text."""
    names = FREE_TEXT if action_names is None else ", ".join(action_names)
    return (
        f"Actions: {names}\n"
        f"Turns left: {turns_left}. Actions left: {actions_left}.\n"
        f"Reply format (keep the tags): {reply_example}"
    )


def write_reply_example(*, max_actions_per_turn: int, separator: str, think: bool) -> str:
    """Write the shape of a reply with placeholders in it."""
    actions = ("your action",) * min(max_actions_per_turn, 2)
    return format_reply(actions, separator=separator, think=think, thought="your reasoning")


def format_reward(reward: float) -> str:
    """Write a reward with two decimals, or in powers of ten from a million on."""
    return f"{reward:z.2f}" if abs(reward) < 1e6 else f"{reward:.2e}"
