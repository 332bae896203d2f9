import pytest

from ragen_envs import prompts
from ragen_envs.parsing import ParsedReply, parse_reply

VALID = ParsedReply("", ("Up",), is_valid=True)
PARTLY_KNOWN = ParsedReply("", ("Up",), is_valid=False)
MALFORMED = ParsedReply("", (), is_valid=False)


@pytest.mark.parametrize(
    ("reward", "text"),
    [
        (-0.30000000000000004, "-0.30"),
        (10.9, "10.90"),
        (0.0, "0.00"),
        (-0.0, "0.00"),
        (-0.001, "0.00"),
        (0.15, "0.15"),
        (-999_999.999, "-1000000.00"),
        (1e6, "1.00e+06"),
        (-1e308, "-1.00e+308"),
    ],
)
def test_format_reward_is_short_and_has_two_decimals(reward, text):
    assert prompts.format_reward(reward) == text


def test_write_first_message_puts_task_limit_state_and_request_in_order():
    message = prompts.write_first_message(
        "Find it.", "##\nP_", "Go on.", max_actions_per_turn=3, separator="||"
    )
    assert message == (
        "Find it.\n"
        "Each turn, reply with at most 3 actions, with || between them.\n"
        "State:\n##\nP_\nGo on."
    )


def test_write_first_message_without_task_and_with_one_action_leaves_lines_out():
    message = prompts.write_first_message("", "s", "Go on.", max_actions_per_turn=1, separator="||")
    assert message == "Each turn, reply with one action.\nState:\ns\nGo on."


@pytest.mark.parametrize(
    ("reply", "notice"),
    [
        (VALID, ""),
        (PARTLY_KNOWN, "Unknown actions were skipped.\n"),
        (MALFORMED, "No legal action found in the last reply.\n"),
    ],
)
def test_write_turn_message_says_what_was_wrong_with_the_reply(reply, notice):
    message = prompts.write_turn_message(-0.2, reply, "s", "Go on.")
    assert message == f"Reward: -0.20\n{notice}State:\ns\nGo on."


def test_write_last_message_holds_reward_and_state_only():
    assert prompts.write_last_message(10.9, "##\n√_") == "Reward: 10.90\nState:\n##\n√_"


def test_write_request_names_actions_and_what_is_left():
    request = prompts.write_request(("Up", "Down"), turns_left=4, actions_left=7, reply_example="R")
    assert (
        request
        == "Actions: Up, Down\nTurns left: 4. Actions left: 7.\nReply format (keep the tags): R"
    )


def test_write_request_with_free_text_says_so():
    request = prompts.write_request(None, turns_left=1, actions_left=1, reply_example="R")
    assert request.startswith("Actions: free text\n")


@pytest.mark.parametrize(
    ("max_actions_per_turn", "think", "example"),
    [
        (5, True, "<think>your reasoning</think><answer>your action || your action</answer>"),
        (5, False, "<answer>your action || your action</answer>"),
        (1, False, "<answer>your action</answer>"),
    ],
)
def test_write_reply_example_shows_a_reply_of_the_asked_shape(max_actions_per_turn, think, example):
    written = prompts.write_reply_example(
        max_actions_per_turn=max_actions_per_turn, separator="||", think=think
    )
    assert written == example
    assert parse_reply(written, ("your action",), think=think).is_valid
