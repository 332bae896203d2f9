"""Results as tables for the terminal."""

import math
from collections.abc import Mapping

from ragen_trl.evaluate.comparison import PairedComparison
from ragen_trl.evaluate.result import EvaluationResult
from ragen_trl.evaluation import Rate, align_rows, format_rate


def format_result(result: EvaluationResult) -> str:
    """Write one line per environment, beside random play and the optimum."""
    settings, summaries = result.settings, result.summaries
    ks = sorted({k for summary in summaries.values() for k in summary.pass_at_k})
    rows = [
        [
            *("environment", "success [95 % interval]", *(f"pass@{k}" for k in ks)),
            *("random play", "optimum", "reward", "turns", "actions", "valid", "effective"),
            *("tokens/reply", "errors"),
        ]
    ]
    for name, summary in summaries.items():
        rate = Rate(summary.success_rate, summary.success_rate_low, summary.success_rate_high)
        rows.append(
            [
                name,
                format_rate(rate if summary.num_episodes else None),
                *(format_rate(summary.pass_at_k.get(k)) for k in ks),
                format_rate(result.random_success[name]),
                format_rate(result.optimal_success[name]),
                _number(summary.reward, "+.3f"),
                _number(summary.turns, ".2f"),
                _number(summary.actions, ".2f"),
                _number(summary.valid_reply_ratio, ".0%"),
                _number(summary.effective_action_ratio, ".0%"),
                _number(summary.response_length, ".1f"),
                str(summary.num_errors),
            ]
        )
    title = (
        f"{result.model}: {settings['episodes']} start states from seed {settings['seed']} on, "
        f"{settings['samples']} episode(s) each, temperature {settings['temperature']}"
    )
    usage = ", ".join(f"{name} {value:g}" for name, value in result.usage.items())
    return "\n".join([title, align_rows(rows), *([f"usage: {usage}"] if usage else [])])


def format_comparison(first: str, second: str, comparisons: Mapping[str, PairedComparison]) -> str:
    """Write one line per environment: who solved what, and whether the difference is chance."""
    rows = [["environment", "both", "first only", "second only", "neither", "unpaired", "p"]]
    for name, comparison in comparisons.items():
        counts = (
            comparison.num_both,
            comparison.num_first_only,
            comparison.num_second_only,
            comparison.num_neither,
            comparison.num_unpaired,
        )
        rows.append([name, *map(str, counts), f"{comparison.p_value:.3g}"])
    title = (
        f"{first} (first) against {second} (second): start states that each solved, and the "
        "two-sided p-value of the exact McNemar test"
    )
    return f"{title}\n{align_rows(rows)}"


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)
