import pytest

from ragen_trl import StarPOConfig
from ragen_trl.monitor import default_signals
from ragen_trl.monitor.signals import SuccessHistory
from tests.ragen_trl.monitor.logs import healthy_log

SIGNALS = {signal.name: signal for signal in default_signals(patience=4)}


def test_papers_numbers_are_the_defaults():
    std, failure = SIGNALS["reward_std"], SIGNALS["validation_failure"]
    # RAGEN-2: the last ten all below 0.1 * V0, V0 the mean of the first ten.
    assert (std.rule.share, std.rule.num_start, std.patience) == (0.1, 10, 10)
    assert (failure.rule.limit, failure.patience) == (0.01, 5)
    assert SIGNALS["nothing_kept"].patience == 5


def test_patience_is_that_of_signals_without_a_number_of_their_own():
    own = {name for name, signal in SIGNALS.items() if signal.patience == 4}
    assert own == {
        "entropy",
        "response_length",
        "distinct_ngrams",
        "near_duplicates",
    }


def test_names_are_unique_and_every_watched_metric_is_logged():
    assert len(SIGNALS) == len(default_signals())
    logged = set(healthy_log(0)[0]) | {"eval_success_rate"}
    assert {signal.metric for signal in SIGNALS.values()} <= logged


def test_advice_names_fields_of_the_configuration():
    fields = StarPOConfig.__dataclass_fields__
    for signal in SIGNALS.values():
        named = signal.advice.split("`")[1::2]
        assert named, signal.name
        assert set(named) <= set(fields), signal.name


def feed(rates):
    history = SuccessHistory()
    for rate in rates:
        history.add(rate)
    return history


def test_without_success_nothing_is_excused():
    assert not SuccessHistory().excuses("solved")
    assert SuccessHistory().is_near_best


@pytest.mark.parametrize(
    ("rates", "excused"),
    [
        ([0.9] * 3, {"solved", "learned"}),
        # The mean of three is 0.887.
        ([0.9, 0.9, 0.86], set()),
        # From 0.2 to 0.5, and still there.
        ([0.2] * 5 + [0.5] * 5, {"learned"}),
        # Never better than at the start: near its best, but not by learning.
        ([0.2] * 10, set()),
        # Has risen, but the last three are 0.43, less than 0.9 * 0.5.
        ([0.2] * 5 + [0.5] * 5 + [0.43] * 3, set()),
        # A rise of less than 0.05 is none.
        ([0.2] * 5 + [0.24] * 5, set()),
    ],
)
def test_success_excuses(rates, excused):
    history = feed(rates)
    assert {
        excuse for excuse in ("none", "solved", "learned") if history.excuses(excuse)
    } == excused


def test_rise_within_noise_is_none():
    # Steps of +-0.4 around 0.4: the last three are 0.467, the first five 0.36, the noise 0.42.
    assert not feed([0.2, 0.6] * 5 + [0.2, 0.6, 0.6]).has_risen
    assert feed([0.35, 0.36] * 5 + [0.45, 0.47, 0.48]).has_risen
