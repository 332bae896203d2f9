"""Play an environment in the terminal.

    python examples/play.py --env ragen/Sokoban-v0 --seed 3
    python examples/play.py --env ragen/FrozenLake-v0 --turns

Type the name of an action or enough of its beginning. With `--turns` you sit in the model's place:
you read its messages and type whole replies. Ctrl-D or Ctrl-C ends the game.
"""

import argparse
from contextlib import ExitStack, closing
from typing import Any

import gymnasium as gym

import ragen_envs  # noqa: F401  (registers the ids)
from ragen_envs.agent_turns import AgentTurns


def read_action(names: tuple[str, ...]) -> int:
    """Ask until the input begins exactly one name; return its index."""
    while True:
        typed = input(f"{' / '.join(names)}> ").strip().casefold()
        known = [name.casefold() for name in names]
        found = [name for name in known if name.startswith(typed)]
        if typed in known or (typed and len(found) == 1):
            return known.index(typed if typed in known else found[0])
        print(f"{typed!r} does not stand for exactly one action.")


def play_actions(env: gym.Env[str, int]) -> None:
    """Play one action at a time, from a fresh reset to the end."""
    total = 0.0
    terminated = truncated = False
    while not (terminated or truncated):
        action = read_action(env.get_wrapper_attr("action_names"))
        state, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        print(f"\n{state}\nreward {float(reward):.2f}, in all {total:.2f}")
    print("Solved." if info.get("success") else "Not solved.")


def play_turns(env: AgentTurns) -> None:
    """Play one reply at a time, from a fresh reset to the end."""
    total = 0.0
    terminated = truncated = False
    while not (terminated or truncated):
        message, reward, terminated, truncated, info = env.step(input("reply> "))
        total += reward
        print(f"\nexecuted: {', '.join(info['executed_actions']) or 'nothing'}\n{message}")
    print(f"{'Solved' if info.get('success') else 'Not solved'}, {total:.2f} in all.")


def main() -> None:
    """Read the command line and play one episode."""
    parser = argparse.ArgumentParser(description="Play an environment in the terminal.")
    parser.add_argument("--env", default="ragen/Sokoban-v0", help="any registered id")
    parser.add_argument("--seed", type=int, default=None, help="seed of the start state")
    parser.add_argument("--turns", action="store_true", help="type whole replies, as a model does")
    args = parser.parse_args()
    with ExitStack() as stack:
        try:
            env: gym.Env[Any, Any] = stack.enter_context(closing(gym.make(args.env)))
            agent_env = AgentTurns(env)  # refuses what cannot be played by typing
            by_turns = args.turns or not isinstance(env.action_space, gym.spaces.Discrete)
            env = agent_env if by_turns else env
            first, _ = env.reset(seed=args.seed)
        except (gym.error.Error, ImportError, TypeError, ValueError) as error:
            parser.error(f"cannot play {args.env!r}: {error}")
        has_task = not by_turns and env.has_wrapper_attr("task_description")
        print(f"{env.get_wrapper_attr('task_description')}\n\n{first}" if has_task else first)
        try:
            play_turns(env) if isinstance(env, AgentTurns) else play_actions(env)
        except (EOFError, KeyboardInterrupt):
            print("\nLeft the game.")


if __name__ == "__main__":
    main()
