"""A call in order for each public callable of `ragen_envs`, with all arguments that it knows."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import ragen_envs
from ragen_envs import AgentTurns, baselines, splits, tools, vector
from ragen_envs.curriculum import Curriculum
from ragen_envs.gif import write_gif
from ragen_envs.statistics import wilson_interval
from tests.odd_arguments import Call

BANDIT, LAKE, ROOM = "ragen/Bandit-v0", "ragen/FrozenLake-v0", "ragen/Sokoban-v0"
IDS = (BANDIT, LAKE, ROOM)
LEVEL = "#####\n#@$.#\n#####"
LAKE_KINDS = ("player", "frozen", "hole", "goal", "player_in_hole", "player_on_goal")
ROOM_KINDS = ("wall", "empty", "target", "box_on_target", "box", "player", "player_on_target")

# Arguments of the environments, together those of their classes; `desc` and `levels` leave some of
# the others without effect.
ENVS: dict[type, list[dict[str, Any]]] = {
    ragen_envs.BanditEnv: [
        {
            "low_arm_name": "Ant",
            "high_arm_name": "Bee",
            "low_arm_reward": 0.1,
            "high_arm_reward": 1.0,
            "high_arm_probability": 0.5,
            "render_mode": None,
        }
    ],
    ragen_envs.FrozenLakeEnv: [
        {
            "size": (3, 3),
            "frozen_probability": 0.8,
            "is_slippery": True,
            "success_rate": 0.5,
            "observation_format": "grid",
            "render_mode": None,
        },
        {"desc": ["SFG"], "symbols": dict(zip(LAKE_KINDS, "abcdef", strict=True))},
    ],
    ragen_envs.SokobanEnv: [
        {
            "size": (5, 5),
            "num_boxes": 1,
            "observation_format": "grid",
            "min_solution_length": 1,
            "max_solution_length": 8,
            "render_mode": None,
        },
        {
            "levels": [LEVEL],
            "symbols": dict(zip(ROOM_KINDS, "abcdefg", strict=True)),
            "min_solution_length": 1,
            "max_solution_length": None,
        },
    ],
}
VECTORS: dict[type, type] = {
    vector.BanditVectorEnv: ragen_envs.BanditEnv,
    vector.FrozenLakeVectorEnv: ragen_envs.FrozenLakeEnv,
    vector.SokobanVectorEnv: ragen_envs.SokobanEnv,
}
OPTIONS: dict[type, list[dict[str, Any]]] = {
    ragen_envs.BanditEnv: [{"dynamics_seed": 1}],
    ragen_envs.FrozenLakeEnv: [{"dynamics_seed": 1, "desc": ["SG"]}],
    ragen_envs.SokobanEnv: [
        {"dynamics_seed": 1, "level": LEVEL},
        {"min_solution_length": 1, "max_solution_length": 5},
    ],
}
LIMITS = {"max_turns": 3, "max_actions_per_turn": 2, "max_actions_per_episode": 4}
TURNS = {**LIMITS, "separator": "||", "think": True, "format_penalty": -0.1}
VECTOR = {"num_envs": 2, "max_episode_steps": 9, "autoreset_mode": "NextStep"}
STAGES = {"raise_above": 0.7, "lower_below": 0.3, "window": 2}
SHARE = {"env": LAKE, "validation_share": 0.5}

# What `**kwargs` of a callable stand for, as names of other callables; none where they are without
# effect.
FORWARDED: dict[str, tuple[str, ...]] = {
    "BanditTools": ("BanditEnv",),
    "BanditTools.reset": (),
    "BanditVectorEnv": ("TextVectorEnv",),
    "BanditVectorEnv.call": (),
    "Curriculum.by_steps": (),
    "FrozenLakeTools": ("FrozenLakeEnv",),
    "FrozenLakeTools.reset": (),
    "FrozenLakeVectorEnv": ("TextVectorEnv", "FrozenLakeEnv"),
    "FrozenLakeVectorEnv.call": (),
    "SokobanTools": ("SokobanEnv",),
    "SokobanTools.reset": (),
    "SokobanVectorEnv": ("TextVectorEnv", "SokobanEnv"),
    "SokobanVectorEnv.call": (),
    "Splits": ("FrozenLakeEnv",),
    "TextVectorEnv": ("BanditEnv",),
    "TextVectorEnv.call": (),
    "demonstrations": ("AgentTurns",),
    "environment_success": (),
    "measure_baseline": ("AgentTurns",),
    "split_seeds": ("FrozenLakeEnv",),
    **{
        f"make_vec {env_id}": ("TextVectorEnv",)
        for env_id in gym.registry
        if env_id.startswith("ragen/")
    },
}
# Not in any `__all__`: methods of what `from_gym` returns, and the other half of `render_gif`.
INNER = {"TextSide.reset", "TextSide.step", "write_gif"}


def start(make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Make an environment and reset it."""
    env = make(*arguments, **options)
    env.reset(seed=0)
    return env


def started(env_id: str) -> partial[Any]:
    """Return what makes an environment that has been reset."""
    return partial(start, gym.make, env_id, **({} if env_id == BANDIT else {"size": (5, 5)}))


def turns(env_id: str = BANDIT) -> AgentTurns:
    """Make an environment in the agent's view that has been reset."""
    return start(AgentTurns, gym.make(env_id))


def text_side() -> Any:
    """Make a text side that has been reset."""
    return start(ragen_envs.from_gym, gym.make("FrozenLake-v1"))


def curriculum() -> Curriculum:
    """Make a curriculum of two stages."""
    return Curriculum([(1, 2), (3, None)], **STAGES)


def list_calls(folder: Path) -> dict[str, list[Call]]:
    """Return valid calls by the names of `list_surface`; what is written goes to `folder`."""
    return {
        **_list_functions(folder),
        **_list_wrappers(),
        **_list_curricula_and_splits(),
        **_list_baselines(),
        **_list_environments(),
        **_list_vectors(),
        **_list_ids(),
    }


def _list_functions(folder: Path) -> dict[str, list[Call]]:
    r = ragen_envs
    return {
        "ParsedReply": [Call(r.ParsedReply, thought="", actions=(), is_valid=True)],
        "demonstrations": [
            Call(
                r.demonstrations,
                id=env_id,
                num_episodes=1,
                seed=0,
                thoughts=True,
                env_kwargs={} if env_id == BANDIT else {"size": (5, 5)},
                **TURNS,
            )
            for env_id in IDS
        ],
        "optimal_success": [Call(r.optimal_success, env=started(i), horizon=3) for i in IDS],
        "optimal_turn_success": [
            Call(r.optimal_turn_success, env=started(i), **LIMITS) for i in IDS
        ],
        "parse_reply": [
            Call(r.parse_reply, text="Up", action_names=["Up"], separator="||", think=True)
        ],
        "render_gif": [
            Call(
                r.render_gif,
                env=partial(gym.make, BANDIT, render_mode="rgb_array"),
                actions=[0],
                path=folder / "bandit.gif",
                seed=0,
                options={"dynamics_seed": 1},
                seconds_per_frame=0.5,
            )
        ],
        "solve": [Call(r.solve, env=started(i), max_states=1000) for i in (BANDIT, ROOM)],
        "solve_turn": [Call(r.solve_turn, env=started(i), **LIMITS) for i in IDS],
        "write_gif": [
            Call(
                write_gif,
                frames=[np.zeros((8, 8, 3), np.uint8)],
                path=folder / "frames.gif",
                seconds_per_frame=0.5,
                seconds_at_end=0.5,
            )
        ],
        "wilson_interval": [Call(wilson_interval, successes=1, trials=2, confidence=0.9)],
    }


def _list_wrappers() -> dict[str, list[Call]]:
    luck = {"seed": 0, "options": {"dynamics_seed": 1}}
    return {
        "AgentTurns": [Call(AgentTurns, env=partial(gym.make, BANDIT), **TURNS)],
        "AgentTurns.reset": [Call(lambda **kw: turns().reset(**kw), **luck)],
        "AgentTurns.step": [Call(lambda **kw: turns().step(**kw), action="Up")],
        "OptimalActions": [Call(ragen_envs.OptimalActions, env=partial(gym.make, LAKE), horizon=5)],
        "OptimalActions.reset": [
            Call(lambda **kw: ragen_envs.OptimalActions(gym.make(LAKE)).reset(**kw), **luck)
        ],
        "OptimalActions.step": [
            Call(lambda **kw: start(ragen_envs.OptimalActions, gym.make(LAKE)).step(**kw), action=0)
        ],
        "TextSide.reset": [Call(lambda **kw: text_side().reset(**kw), **luck)],
        "TextSide.step": [Call(lambda **kw: text_side().step(**kw), action=0)],
        "from_gym": [
            Call(
                ragen_envs.from_gym,
                env=partial(gym.make, "FrozenLake-v1"),
                action_names=("a", "b", "c", "d"),
                task_description="Walk.",
                describe=str,
                charset="0123456789\nFGHPSWX",
                max_length=100,
            )
        ],
    }


def _list_curricula_and_splits() -> dict[str, list[Call]]:
    counts = {"num_train": 2, "num_validation": 2, "first_seed": 0}
    lakes = ENVS[ragen_envs.FrozenLakeEnv]
    options = {"dynamics_seed": 1}
    state = {"ranges": [[1, 2], [3, None]], "stage": 0, "batches": [[1.0, 1]]}
    made = partial(splits.Splits, LAKE)
    return {
        "Curriculum": [Call(Curriculum, ranges=[(1, 2), (3, 4)], **STAGES)],
        "Curriculum.by_steps": [Call(Curriculum.by_steps, first=1, step=1, last=3, **STAGES)],
        "Curriculum.load_state_dict": [
            Call(lambda **kw: curriculum().load_state_dict(**kw), state=state)
        ],
        "Curriculum.update": [
            Call(lambda **kw: curriculum().update(**kw), success=0.5, num_episodes=1)
        ],
        "Split": [Call(splits.Split, train=(), validation=())],
        "Splits": [
            *(Call(splits.Splits, **SHARE, **lake) for lake in lakes),
            Call(splits.Splits, env=started(ROOM), validation_share=0.5),
        ],
        "Splits.is_validation": [
            Call(lambda **kw: made().is_validation(**kw), seed=0, options=options),
            Call(lambda **kw: splits.Splits(BANDIT).is_validation(**kw), seed=0, options=options),
        ],
        "Splits.train_seeds": [
            Call(lambda **kw: made().train_seeds(**kw), first_seed=0, options=options)
        ],
        "Splits.validation_seeds": [
            Call(
                lambda **kw: made().validation_seeds(**kw),
                num_seeds=1,
                first_seed=0,
                options=options,
            )
        ],
        "canonical_form": [Call(splits.canonical_form, env=started(LAKE))],
        "is_held_out": [Call(splits.is_held_out, env=started(LAKE), validation_share=0.5)],
        "split_seeds": [
            *(Call(splits.split_seeds, **SHARE, **counts, **lake) for lake in lakes),
            Call(splits.split_seeds, env=started(BANDIT), validation_share=0.5, **counts),
        ],
    }


def _list_baselines() -> dict[str, list[Call]]:
    b = baselines
    rng = partial(np.random.default_rng, 0)
    return {
        # Records hold what they are given.
        "Baseline": [Call(b.Baseline, **dict.fromkeys(b.Baseline._fields))],
        "EpisodeResult": [Call(b.EpisodeResult, success=True, reward=1.0)],
        "measure_baseline": [
            Call(
                b.measure_baseline,
                env_id=BANDIT,
                seeds=[1, 2],
                env_kwargs={"low_arm_reward": 0.1},
                **TURNS,
            )
        ],
        "play": [Call(b.play, env=partial(turns), policy=b.random_policy, seeds=[1, 2])],
        "play_random": [Call(b.play_random, env=partial(turns), seeds=[1, 2])],
        "random_reply": [
            Call(
                b.random_reply,
                action_names=["Up", "Down"],
                rng=rng,
                num_actions=2,
                separator="||",
                think=True,
            )
        ],
        **{
            policy.__name__: [
                # Their arguments are positional in `Policy`.
                Call(policy, env=partial(turns, env_id), rng=rng)
                for env_id in IDS
            ]
            for policy in (b.random_policy, b.greedy_policy, b.solver_policy)
        },
    }


def _list_environments() -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {
        "TextEnv": [Call(ragen_envs.BanditEnv, render_mode=None)],
        "environment_success": [
            Call(tools.environment_success, environments=[tools.BanditTools()])
        ],
    }
    for kind, arguments in ENVS.items():
        name = kind.__name__
        calls[name] = [Call(kind, **each) for each in arguments]
        calls[f"{name}.reset"] = [
            Call(lambda kind=kind, **kw: kind().reset(**kw), seed=0, options=options)
            for options in OPTIONS[kind]
        ]
        calls[f"{name}.step"] = [Call(lambda kind=kind, **kw: start(kind).step(**kw), action=0)]
    calls["TextEnv.reset"] = calls["BanditEnv.reset"]
    calls["TextEnv.step"] = calls["BanditEnv.step"]
    own = {"max_actions": 3, "idle_penalty": -1.0, "luck_seed": 1}
    for kind, env, tool, choice in (
        (tools.BanditTools, ragen_envs.BanditEnv, "pull", {"arm": "Dragon"}),
        (tools.FrozenLakeTools, ragen_envs.FrozenLakeEnv, "move", {"direction": "Up"}),
        (tools.SokobanTools, ragen_envs.SokobanEnv, "move", {"direction": "Up"}),
    ):
        name = kind.__name__
        calls[name] = [Call(kind, **own, **arguments) for arguments in ENVS[env]]
        calls[f"{name}.reset"] = [
            Call(
                lambda kind=kind, **kw: kind().reset(**kw),
                seed=0,
                dynamics_seed=1,
                prompt=[{"role": "user", "content": "Play."}],
            )
        ]
        calls[f"{name}.{tool}"] = [
            Call(lambda kind=kind, tool=tool, **kw: getattr(start(kind), tool)(**kw), **choice)
        ]
    return calls


def _list_vectors() -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {}
    for kind, env in VECTORS.items():
        name = kind.__name__
        calls[name] = [Call(kind, **VECTOR, **arguments) for arguments in ENVS[env]]
        calls[f"{name}.reset"] = [
            Call(lambda kind=kind, **kw: kind(2).reset(**kw), seed=[1, 2], options=options)
            for options in (*OPTIONS[env], {"reset_mask": np.array([True, True])})
        ]
        calls[f"{name}.step"] = [
            Call(lambda kind=kind, **kw: start(kind, 2).step(**kw), actions=[0, 1])
        ]
        for method in ("call", "get_attr"):
            calls[f"{name}.{method}"] = [
                Call(
                    lambda kind=kind, method=method, **kw: getattr(start(kind, 2), method)(**kw),
                    name="action_names",
                )
            ]
        calls[f"{name}.set_attr"] = [
            Call(lambda kind=kind, **kw: kind(2).set_attr(**kw), name="state", values=1)
        ]
    for name, listed in list(calls.items()):
        if name.startswith("BanditVectorEnv"):
            calls[name.replace("Bandit", "Text")] = listed
    return calls


def _list_ids() -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {}
    for env_id, spec in gym.registry.items():
        if env_id.startswith("ragen/"):
            listed = ENVS[gym.envs.registration.load_env_creator(str(spec.entry_point))]
            # Gymnasium itself reads `render_mode`, before any of our code.
            singles = [{k: v for k, v in a.items() if k != "render_mode"} for a in listed]
            calls[f"make {env_id}"] = [
                Call(partial(gym.make, env_id), **arguments) for arguments in singles
            ]
            calls[f"make_vec {env_id}"] = [
                Call(partial(gym.make_vec, env_id), **VECTOR, **arguments) for arguments in listed
            ]
    return calls
