"""Logs of training that never took place: healthy ones and four ways to go wrong."""

import numpy as np

NUM_ITERATIONS = 150


def ramp(begin, end, first, last, num=NUM_ITERATIONS):
    """A value that goes from one level to another one between two iterations."""
    return np.interp(np.arange(num), [begin, end], [first, last])


def make_log(curves, seed, *, noise=0.05):
    """Log entries of curves with noise: shares get `noise`, sizes 15 % of themselves."""
    generator = np.random.default_rng(seed)
    columns = {}
    for name, curve in curves.items():
        curve = np.asarray(curve, dtype=float)
        if name in ("success_rate", "rollout/valid_reply_ratio", "rollout/valid_think_ratio"):
            spread = noise * 2 * np.sqrt(curve * (1 - curve))
            columns[name] = np.clip(curve + spread * generator.normal(size=len(curve)), 0, 1)
        elif name.endswith("_ratio"):
            columns[name] = np.clip(curve + 0.03 * generator.normal(size=len(curve)), 0, 1)
        else:
            scale = 0.4 if name == "grad_norm" else 0.1
            columns[name] = curve * np.exp(scale * generator.normal(size=len(curve)))
    names = list(columns)
    rows = zip(*columns.values(), strict=True)
    return [{"step": i + 1, **dict(zip(names, row, strict=True))} for i, row in enumerate(rows)]


def healthy_curves():
    """Success rises from 0.2 to 0.6 and stays; entropy and variance fall a little."""
    return {
        "success_rate": ramp(0, 60, 0.2, 0.6),
        "rollout/in_group_reward_std": ramp(0, 100, 0.4, 0.25),
        "rollout/zero_variance_ratio": ramp(0, 100, 0.1, 0.3),
        "rollout/skipped_update": np.zeros(NUM_ITERATIONS),
        "rollout/response_length": ramp(0, 100, 120, 90),
        "rollout/distinct_ngrams": ramp(0, 100, 0.5, 0.35),
        "rollout/near_duplicate_ratio": ramp(0, 100, 0.03, 0.2),
        "rollout/valid_reply_ratio": ramp(0, 40, 0.7, 0.97),
        "rollout/valid_think_ratio": ramp(0, 40, 0.8, 0.98),
        "entropy": ramp(0, 100, 1.0, 0.45),
        "grad_norm": ramp(0, 100, 0.5, 0.3),
        "update_kl": ramp(0, 100, 0.05, 0.01),
    }


def healthy_log(seed):
    return make_log(healthy_curves(), seed)


def flat_log(seed):
    """Nothing is learned, and nothing collapses."""
    curves = {name: np.full(NUM_ITERATIONS, c[0]) for name, c in healthy_curves().items()}
    return make_log(curves, seed)


def hard_log(seed):
    """Few start states per rollout: a success rate of 0.04 to 0.3 with as much noise."""
    curves = healthy_curves() | {"success_rate": ramp(20, 150, 0.04, 0.3)}
    return make_log(curves, seed, noise=0.15)


def mastered_log(seed):
    """Success reaches 1, and then there is no variance, no entropy, no variety left."""
    curves = healthy_curves() | {
        "success_rate": ramp(5, 30, 0.5, 1.0),
        "rollout/in_group_reward_std": ramp(5, 32, 0.5, 0.0),
        "rollout/zero_variance_ratio": ramp(5, 35, 0.1, 1.0),
        "rollout/skipped_update": (np.arange(NUM_ITERATIONS) > 36).astype(float),
        "rollout/response_length": ramp(5, 32, 120, 30),
        "rollout/distinct_ngrams": ramp(5, 32, 0.5, 0.01),
        "rollout/near_duplicate_ratio": ramp(5, 32, 0.03, 1.0),
        "entropy": ramp(5, 30, 1.0, 0.005),
        "grad_norm": ramp(10, 36, 0.5, 0.0),
    }
    return make_log(curves, seed)


def echo_trap_log(seed):
    """Variance falls from iteration 50 on, then entropy and variety, from 75 on success."""
    success = np.minimum(ramp(0, 50, 0.2, 0.45), ramp(75, 110, 0.45, 0.05))
    curves = healthy_curves() | {
        "success_rate": success,
        "rollout/in_group_reward_std": ramp(50, 75, 0.4, 0.01),
        "rollout/zero_variance_ratio": ramp(50, 80, 0.1, 1.0),
        "rollout/response_length": ramp(60, 85, 120, 25),
        "rollout/distinct_ngrams": ramp(60, 80, 0.5, 0.02),
        "rollout/near_duplicate_ratio": ramp(60, 80, 0.03, 0.95),
        "entropy": ramp(60, 75, 0.9, 0.03),
        "grad_norm": ramp(85, 95, 0.5, 3.0),
    }
    return make_log(curves, seed)


def gradient_explosion_log(seed):
    """Gradient norms grow by half with every update from 60 on; success dies from 68 on."""
    growth = 1.5 ** np.clip(np.arange(NUM_ITERATIONS) - 60.0, 0, 12)
    success = np.minimum(ramp(0, 60, 0.2, 0.6), ramp(68, 80, 0.6, 0.0))
    curves = healthy_curves() | {
        "success_rate": success,
        "grad_norm": healthy_curves()["grad_norm"] * growth,
        "entropy": np.maximum(healthy_curves()["entropy"], ramp(68, 78, 0, 3)),
    }
    return make_log(curves, seed)


def slow_decline_log(seed):
    """Success sinks from 0.6 to 0.1 between iterations 50 and 150, and all else looks well."""
    curves = healthy_curves()
    success = np.minimum(ramp(0, 50, 0.2, 0.6), ramp(50, 150, 0.6, 0.1))
    return make_log(curves | {"success_rate": success}, seed)
