"""The picture of a run: learning curves beside random play and the optimum."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

# A picture is at most 2**16 pixels wide, and each takes a third of a second.
MAX_ENVIRONMENTS = 40
MAX_VALUE = 1e300

_PANELS = (
    ("reward", "return per episode"),
    ("rollout/in_group_reward_std", "std of returns within a group"),
    ("entropy", "entropy of sampled tokens (nats)"),
)


class Reference(NamedTuple):
    """Success rates that a curve is compared with.

    Attributes:
        random_play: Of uniformly random legal actions, if measured.
        optimum: The best reachable, if known.
    """

    random_play: float | None
    optimum: float | None


def plot_curves(
    log_history: Sequence[Mapping[str, Any]],
    path: Path,
    *,
    references: Mapping[str, Reference],
    title: str = "",
) -> None:
    """Draw a run's log as one PNG: success per environment, then return, spread and entropy.

    Args:
        log_history: Entries of `trainer.state.log_history`. What is no number, or one beyond
            `MAX_VALUE`, is left out.
        path: File to write; its folder must exist.
        references: By environment name, as in the keys of the log. With several environments each
            gets a panel of its own, up to `MAX_ENVIRONMENTS`.
        title: Headline.
    """
    # Without a display, whatever matplotlib is set up for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if len(references) > MAX_ENVIRONMENTS:
        title += f" (the first {MAX_ENVIRONMENTS} of {len(references)} environments)"
        references = dict(islice(references.items(), MAX_ENVIRONMENTS))
    count = len(references) + len(_PANELS)
    figure = Figure(figsize=(4.2 * count, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, count)
    for axis, (name, reference) in zip(axes, references.items(), strict=False):
        is_only = len(references) == 1
        _plot_success(axis, log_history, name, reference, is_only=is_only)
    for axis, (key, label) in zip(axes[len(references) :], _PANELS, strict=True):
        axis.plot(*_series(log_history, key), color="tab:blue", linewidth=1)
        axis.set(title=label, xlabel="update")
        axis.grid(alpha=0.3)
    # Two dollar signs in a name are no formula.
    figure.suptitle(title, parse_math=False)
    figure.savefig(path, dpi=110)


def _plot_success(
    axis: Any,
    log_history: Sequence[Mapping[str, Any]],
    name: str,
    reference: Reference,
    *,
    is_only: bool,
) -> None:
    train_key = "success_rate" if is_only else f"{name}/success_rate"
    stem = "eval_" if is_only else f"eval_{name}_"
    axis.plot(*_series(log_history, train_key), color="tab:blue", alpha=0.4, label="training")
    keys = [f"{stem}success_rate{end}" for end in ("", "_low", "_high")]
    steps, rates, low, high = _series(log_history, *keys)
    axis.plot(steps, rates, "o-", color="tab:blue", label="evaluation, 95 % interval")
    axis.fill_between(steps, low, high, color="tab:blue", alpha=0.15)
    if _can_be_drawn(reference.random_play):
        axis.axhline(reference.random_play, color="tab:red", linestyle="--", label="random play")
    if _can_be_drawn(reference.optimum):
        axis.axhline(reference.optimum, color="tab:green", linestyle=":", label="optimum")
    axis.set_title(f"success, {name}", parse_math=False)
    axis.set(xlabel="update", ylim=(-0.02, 1.05))
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7, loc="lower right")


def _series(log_history: Sequence[Mapping[str, Any]], *keys: str) -> list[list[float]]:
    """Return the steps and the values of each key, of the entries that hold all of them."""
    rows: list[list[Any]] = [[e.get(key) for key in ("step", *keys)] for e in log_history]
    points = [[float(value) for value in row] for row in rows if all(map(_can_be_drawn, row))]
    return [list(values) for values in zip(*points, strict=True)] or [[] for _ in ("step", *keys)]


def _can_be_drawn(value: Any) -> bool:
    # Further out, the distance between two ticks is infinite. NaN is not below either.
    return isinstance(value, int | float) and abs(value) < MAX_VALUE
