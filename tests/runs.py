"""Run folders written by hand, for tests of what is read out of them."""

import json
import math

from ragen_trl.records import write_trajectories
from ragen_trl.trajectory import Turn
from tests.episodes import make_trajectory

LAKE = "ragen/FrozenLake-v0"
BOARDS = ("P__\n_O_\n__G", "_P_\n_O_\n__G", "___\n_O_\n__√")


def write_lines(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), encoding="utf-8")


def make_episode(*, seed, group_id, success, thought="I go right.", env_id=LAKE):
    """Two turns on a lake of three by three; the second fails or finds the goal."""
    turns = [
        Turn(
            observation=f"Rules.\nState:\n{BOARDS[k]}\nTurns left: {5 - k}.",
            reply=f"<think>{thought}</think><answer>{action}</answer>",
            actions=(action,),
            executed_actions=(action,),
            is_valid=True,
            state=BOARDS[k],
        )
        for k, action in enumerate(("Right", "Down"))
    ]
    return make_trajectory(
        env_id=env_id,
        seed=seed,
        group_id=group_id,
        success=success,
        turns=turns,
        turn_rewards=[0.0, float(success)],
        final_state=BOARDS[2] if success else BOARDS[1],
    )


def write_rollout(folder, iteration, *, num_groups=4, num_generations=4, step=None, **episode):
    """Group g solves its first g episodes; the filter kept the groups in the middle."""
    rows = []
    for group_id in range(num_groups):
        is_kept = 0 < group_id < num_groups - 1
        further = {
            "iteration": iteration,
            "step": iteration if step is None else step,
            "is_kept": is_kept,
            "group_score": float(group_id),
            "advantages": [0.5, -0.25] if is_kept else None,
        }
        for member in range(num_generations):
            seed = 10_000 + num_groups * iteration + group_id
            solved = member < group_id
            rows.append(
                (make_episode(seed=seed, group_id=group_id, success=solved, **episode), further)
            )
    write_trajectories(folder / "trajectories" / f"train-{iteration:05d}.jsonl", rows)


def write_evaluation(folder, step, *, num_episodes=6, num_solved=2, env_id=LAKE):
    rows = [
        (
            make_episode(seed=123 + i, group_id=i, success=i < num_solved, env_id=env_id),
            {"iteration": step, "step": step},
        )
        for i in range(num_episodes)
    ]
    label = "".join(c if c.isalnum() or c in "-_" else "_" for c in env_id)
    write_trajectories(folder / "trajectories" / f"eval-{step:05d}-{label}.jsonl", rows)


def make_log(num_updates, *, eval_every=5):
    """A log in which success climbs to one half."""
    entries = []
    for step in range(1, num_updates + 1):
        rate = 0.5 * step / num_updates
        update = {"loss": 0.1, "grad_norm": 1.0 + math.sin(step), "reward": rate}
        update |= {"success_rate": rate, "entropy": 1.0 - rate, "learning_rate": 1e-4}
        update |= {"rollout/in_group_reward_std": 0.4 - 0.2 * rate, "rollout/kept_group_ratio": 0.5}
        entries.append({**update, "step": step})
        if step % eval_every == 0:
            ends = {"low": rate - 0.1, "high": rate + 0.1}
            interval = {f"eval_success_rate_{end}": value for end, value in ends.items()}
            entries.append(
                {"eval_success_rate": rate, "eval_reward": rate, **interval, "step": step}
            )
    return entries


REFERENCES = {LAKE: {"random_play": {"rate": 0.2, "low": 0.1, "high": 0.3}, "optimum": 1.0}}
COLLAPSE = {
    "step": 9,
    "since": 6,
    "signal": "entropy",
    "value": 0.01,
    "threshold": 0.1,
    "message": "The entropy of sampled tokens fell below a tenth of its start.",
    "action": "warn",
}


def write_run(folder, *, num_updates=10, **episode):
    """Everything that a run of `num_updates` rollouts with an evaluation leaves behind."""
    for iteration in range(num_updates):
        write_rollout(folder, iteration, **episode)
    write_evaluation(folder, num_updates)
    write_lines(folder / "log.jsonl", make_log(num_updates))
    write_lines(folder / "collapse.jsonl", [COLLAPSE])
    (folder / "references.json").write_text(json.dumps(REFERENCES), encoding="utf-8")
    return folder
