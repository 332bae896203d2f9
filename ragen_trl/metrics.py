"""What is measured on a set of trajectories; the names are those of the logs."""

import resource
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from ragen_envs import parse_reply
from ragen_trl.evaluate.scoring import record_episode, summarize
from ragen_trl.monitor.diversity import distinct_ngrams, near_duplicate_ratio
from ragen_trl.rollout import RolloutTimer
from ragen_trl.trajectory import Trajectory


def trajectory_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Average a set of episodes.

    Args:
        trajectories: At least one episode, of any environments.

    Returns:
        `reward` and `success_rate` per episode; under `rollout/`: `response_length` (sampled tokens
        per reply), `turns` and `actions` (executed, per episode), `valid_reply_ratio` (of
        replies), `effective_action_ratio` (of executed actions), `truncated_ratio` (of episodes).
    """
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    num_actions = sum(len(turn.executed_actions) for turn in turns)
    num_tokens = sum(trajectory.num_action_tokens for trajectory in trajectories)
    num_effective = sum(trajectory.num_effective_actions for trajectory in trajectories)
    num_episodes = len(trajectories)
    return {
        "reward": sum(t.total_reward for t in trajectories) / num_episodes,
        "success_rate": sum(t.success for t in trajectories) / num_episodes,
        "rollout/response_length": num_tokens / max(len(turns), 1),
        "rollout/turns": len(turns) / num_episodes,
        "rollout/actions": num_actions / num_episodes,
        "rollout/valid_reply_ratio": sum(turn.is_valid for turn in turns) / max(len(turns), 1),
        "rollout/effective_action_ratio": num_effective / max(num_actions, 1),
        "rollout/truncated_ratio": sum(t.truncated for t in trajectories) / num_episodes,
    }


def reply_metrics(replies: Sequence[str]) -> dict[str, float]:
    """Say how varied the replies of a rollout are, and how many of them think.

    Args:
        replies: All replies of all episodes.

    Returns:
        Under `rollout/`: `distinct_ngrams` and `near_duplicate_ratio` (see `ragen_trl.monitor`), and
        `valid_think_ratio`, the share of replies that begin with a closed think block which is not
        empty; without thoughts (`enable_think=False`) it is 0.
    """
    num_thinking = sum(parse_reply(reply, None).thought != "" for reply in replies)
    return {
        "rollout/distinct_ngrams": distinct_ngrams(replies),
        "rollout/near_duplicate_ratio": near_duplicate_ratio(replies),
        "rollout/valid_think_ratio": num_thinking / max(len(replies), 1),
    }


def rollout_metrics(
    trajectories: Sequence[Trajectory], *, seconds: float, timer: RolloutTimer
) -> dict[str, float]:
    """Average one rollout, and per environment where there are several.

    Args:
        trajectories: All episodes, over all processes.
        seconds: Duration of the rollout.
        timer: What this process spent them on.
    """
    num_tokens = sum(trajectory.num_action_tokens for trajectory in trajectories)
    replies = [turn.reply for trajectory in trajectories for turn in trajectory.turns]
    metrics = trajectory_metrics(trajectories) | reply_metrics(replies)
    metrics |= {
        "rollout/tokens_per_second": num_tokens / max(seconds, 1e-9),
        "time/rollout": seconds,
        "time/generate": timer.generation,
        "time/env": timer.environment,
        "rollout/cache_megabytes": timer.cache_bytes / 1e6,
    }
    env_ids = sorted({trajectory.env_id for trajectory in trajectories})
    for env_id in env_ids if len(env_ids) > 1 else ():
        own = trajectory_metrics([t for t in trajectories if t.env_id == env_id])
        metrics |= {f"{env_id}/{key}": own[key] for key in ("reward", "success_rate")}
    return metrics


def peak_memory() -> dict[str, float]:
    """Return the most memory this process took so far, in megabytes: of its GPU, else resident."""
    if torch.cuda.is_available():
        return {"memory/peak_megabytes": torch.cuda.max_memory_allocated() / 1e6}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, kibibytes elsewhere.
    return {"memory/peak_megabytes": peak / 1e6 if sys.platform == "darwin" else peak * 1.024e-3}


def merge_evaluations(per_env: Mapping[str, Mapping[str, float]], prefix: str) -> dict[str, float]:
    """Prefix an evaluation's metrics: `eval_...`, with several environments `eval_<name>_...`.

    Of several environments, `eval_reward` and `eval_success_rate` are the plain means.
    """
    if len(per_env) == 1:
        (only,) = per_env.values()
        return {f"{prefix}_{key}": value for key, value in only.items()}
    merged = {
        f"{prefix}_{name}_{key}": value
        for name, metrics in per_env.items()
        for key, value in metrics.items()
    }
    for key in ("reward", "success_rate"):
        merged[f"{prefix}_{key}"] = float(np.mean([metrics[key] for metrics in per_env.values()]))
    return merged


def evaluation_metrics(
    trajectories: Sequence[Trajectory], *, optimal_success: float | None
) -> dict[str, float]:
    """Average an evaluation and say how sure one can be of its success rate.

    Args:
        trajectories: Episodes of one environment, the same number for every seed.
        optimal_success: Best reachable success rate on the same seeds, if known.

    Returns:
        `trajectory_metrics`, and `success_rate_low`, `success_rate_high` (95 % Wilson interval over
        episodes), `num_episodes`, `pass@k` where k > 1 episodes were played per seed, and
        `success_vs_optimal` where the optimum is known and not 0.
    """
    metrics = trajectory_metrics(trajectories)
    summary = summarize(record_episode(t, env=t.env_id, sample=0) for t in trajectories)
    metrics |= {
        "success_rate_low": summary.success_rate_low,
        "success_rate_high": summary.success_rate_high,
        "num_episodes": float(summary.num_episodes),
    }
    if summary.pass_at_k:
        samples = max(summary.pass_at_k)
        metrics[f"pass@{samples}"] = summary.pass_at_k[samples]
    if optimal_success:
        metrics["success_vs_optimal"] = metrics["success_rate"] / optimal_success
    return metrics
