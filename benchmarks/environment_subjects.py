"""What `environments.py` measures, and the worker that measures it.

A worker serves the environments that are installed in its interpreter, so that each peer can have the
versions it asks for. It reads one request per line from standard input and answers each in one line of
JSON. Workers import only what a request names; this file needs the standard library alone.
"""

import contextlib
import io
import itertools
import json
import logging
import random
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

# CPU time of this thread: what other processes do to a shared machine stays out of it.
clock = time.thread_time

NUM_ACTION_ARRAYS = 64


class Single(NamedTuple):
    """One environment.

    Attributes:
        reset: Begins an episode with the level of a seed.
        step: Takes one of four actions, by index, and tells whether the episode is over.
    """

    reset: Callable[[int], object]
    step: Callable[[int], bool]


class Batch(NamedTuple):
    """Many environments that begin their next episodes by themselves.

    Attributes:
        num_envs: How many.
        step: Takes random actions in all of them.
    """

    num_envs: int
    step: Callable[[], object]


def _open_single(env_id: str, **arguments: Any) -> Single:
    """What `gymnasium.make` gives, all wrappers included; text is the observation or the rendering."""
    import gymnasium

    env: Any = gymnasium.make(env_id, **arguments)
    return _wrap_gymnasium(lambda seed: env, has_rendering="render_mode" in arguments)


def _open_random_lakes() -> Single:
    """Gymnasium's lake takes the map as an argument, so that a new map takes a new environment."""
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

    return _wrap_gymnasium(
        lambda seed: FrozenLakeEnv(render_mode="ansi", desc=generate_random_map(4, seed=seed)),
        has_rendering=True,
    )


def _wrap_gymnasium(find_env: Callable[[int], Any], *, has_rendering: bool) -> Single:
    env: Any = None

    def reset(seed: int) -> None:
        nonlocal env
        env = find_env(seed)
        env.reset(seed=seed)
        if has_rendering:
            env.render()

    def step(action: int) -> bool:
        _, _, terminated, truncated, _ = env.step(action)
        if has_rendering:
            env.render()
        return bool(terminated or truncated)

    return Single(reset, step)


def _open_batch(env_id: str, num_envs: int, mode: str, **arguments: Any) -> Batch:
    """What `gymnasium.make_vec` gives; text as in `_open_single`."""
    import gymnasium

    envs = gymnasium.make_vec(env_id, num_envs, vectorization_mode=mode, **arguments)
    envs.reset(seed=0)
    envs.action_space.seed(0)
    actions = itertools.cycle([envs.action_space.sample() for _ in range(NUM_ACTION_ARRAYS)])

    def step() -> None:
        envs.step(next(actions))
        if "render_mode" in arguments:
            envs.render()

    return Batch(num_envs, step)


_GEM_ACTIONS = [f"\\boxed{{{name}}}" for name in ("up", "down", "left", "right")]
_GEM_SOKOBAN = {"num_boxes": 1, "max_turns": 100}


def _open_gem_sokoban() -> Single:
    import gem

    env = gem.make("game:Sokoban-v0-easy", **_GEM_SOKOBAN)

    def step(action: int) -> bool:
        _, _, terminated, truncated, _ = env.step(_GEM_ACTIONS[action])
        return terminated or truncated

    return Single(lambda seed: env.reset(seed=seed), step)


def _open_gem_sokoban_batch(num_envs: int) -> Batch:
    import gem

    envs = gem.make_vec(["game:Sokoban-v0-easy"] * num_envs, **_GEM_SOKOBAN)
    rng = random.Random(0)
    actions = itertools.cycle(
        [rng.choices(_GEM_ACTIONS, k=num_envs) for _ in range(NUM_ACTION_ARRAYS)]
    )
    envs.reset()
    return Batch(num_envs, lambda: envs.step(next(actions)))


def _open_textarena(env_id: str) -> Single:
    import textarena

    env = textarena.make(env_id)
    actions = [f"[{name}]" for name in ("up", "down", "left", "right")]

    def reset(seed: int) -> object:
        env.reset(num_players=1, seed=seed)
        return env.get_observation()

    def step(action: int) -> bool:
        is_over, _ = env.step(actions[action])
        env.get_observation()
        return is_over

    return Single(reset, step)


def _open_gym_sokoban() -> Single:
    """It has no text; its smallest picture, one pixel per cell, stands in. It takes no seed."""
    from gym_sokoban.envs.sokoban_env import SokobanEnv

    env = SokobanEnv(dim_room=(7, 7), num_boxes=2, max_steps=100, reset=False)
    picture = "tiny_rgb_array"

    def step(action: int) -> bool:
        _, _, is_over, _ = env.step(action + 1, picture)
        return is_over

    return Single(lambda seed: env.reset(render_mode=picture), step)


OPENERS: dict[str, Callable[..., Single | Batch]] = {
    "single": _open_single,
    "random lakes": _open_random_lakes,
    "batch": _open_batch,
    "gem sokoban": _open_gem_sokoban,
    "gem sokoban batch": _open_gem_sokoban_batch,
    "textarena": _open_textarena,
    "gym-sokoban": _open_gym_sokoban,
}


def time_resets(subject: Single, first_seed: int, num_resets: int, seconds: float) -> list[float]:
    """Time resets one by one, in seconds; fewer than `num_resets` if they take more than `seconds`."""
    times: list[float] = []
    deadline = clock() + seconds
    for seed in range(first_seed, first_seed + num_resets):
        begin = clock()
        subject.reset(seed)
        end = clock()
        times.append(end - begin)
        if end > deadline:
            break
    return times


def time_steps(subject: Single, first_seed: int, num_steps: int, seconds: float) -> float:
    """Return steps per second of random play; resets are not counted."""
    actions = random.Random(first_seed).choices(range(4), k=num_steps)
    deadline = clock() + seconds
    num_done, spent = 0, 0.0
    for seed in itertools.count(first_seed):
        subject.reset(seed)
        is_over = False
        begin = clock()
        while not is_over and num_done < num_steps:
            is_over = subject.step(actions[num_done])
            num_done += 1
        spent += clock() - begin
        if num_done == num_steps or clock() > deadline:
            break
    return num_done / spent


def time_batches(subject: Batch, seconds: float) -> float:
    """Return steps per second of all environments together, the resets between episodes included."""
    num_done, spent, begin = 0, 0.0, clock()
    while spent < seconds:
        subject.step()
        num_done += subject.num_envs
        spent = clock() - begin
    return num_done / spent


def main() -> None:
    """Answer requests until the input ends."""
    logging.disable(logging.INFO)
    answers, opened = sys.stdout, {}
    measures: dict[str, Callable[..., Any]] = {
        "resets": time_resets,
        "steps": time_steps,
        "batches": time_batches,
    }
    for line in sys.stdin:
        request = json.loads(line)
        key = json.dumps(request["subject"])
        with contextlib.redirect_stdout(io.StringIO()):  # some peers print
            try:
                if key not in opened:
                    opener, arguments = request["subject"]
                    opened[key] = OPENERS[opener](**arguments)
                measure = measures[request["measure"]]
                answer = {"result": measure(opened[key], **request["arguments"])}
            except ImportError as error:
                answer = {"missing": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
