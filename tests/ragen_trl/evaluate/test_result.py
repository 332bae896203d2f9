import json
import math

import pytest

from ragen_trl.evaluate import EvaluationResult, EvaluationSettings, compare_results, read_result
from ragen_trl.evaluate.result import list_versions
from ragen_trl.evaluate.store import write_json
from ragen_trl.evaluation import Rate


@pytest.fixture
def make_result(make_record):
    """Make the result of a model from its outcomes by environment."""

    def make(name="a", *, kwargs=None, outcomes=None, **settings):
        outcomes = outcomes or {"lake": [True, False], "chat": [False, False]}
        return EvaluationResult(
            settings={
                "model": {"name": name},
                "environments": {env: {"kwargs": kwargs or {}} for env in outcomes},
                **EvaluationSettings(**settings).__dict__,
            },
            episodes=[
                make_record(env, seed, success=won)
                for env, row in outcomes.items()
                for seed, won in enumerate(row)
            ],
            random_success={env: Rate(0.5, 0.25, 0.75) for env in outcomes} | {"chat": None},
            optimal_success=dict.fromkeys(outcomes, 1.0) | {"chat": None},
            usage={},
            timings={"seconds": 1.5},
        )

    return make


def test_results_survive_their_file(tmp_path, make_result):
    result = make_result()
    content = result.to_dict()
    path = tmp_path / "results.json"
    path.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
    for where in (path, tmp_path, str(tmp_path)):
        read = read_result(where)
        assert read.to_dict() == content
        assert read.episodes == result.episodes
        assert read.random_success == result.random_success
    assert content["summary"]["lake"]["success_rate"] == 0.5
    assert content["summary"]["chat"]["success_rate"] == 0.0
    assert read.model == "a"


def test_what_is_no_result_is_not_read_as_one(tmp_path):
    assert read_result(tmp_path / "missing") is None
    assert read_result(tmp_path) is None
    # What `examples/train.py` leaves beside a trained model.
    (tmp_path / "results.json").write_text('{"before": {}, "after": {}}', encoding="utf-8")
    assert read_result(tmp_path) is None
    assert read_result("Qwen/Qwen2.5-0.5B-Instruct") is None


def test_a_damaged_result_is_named(tmp_path, make_result):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(make_result().to_dict())[:-9], encoding="utf-8")
    with pytest.raises(ValueError, match=r"`compare` .*results\.json cannot be read"):
        read_result(tmp_path)


def test_a_result_with_a_field_of_another_type_is_named(tmp_path, make_result):
    content = json.loads(json.dumps(make_result().to_dict()))
    content["episodes"][0]["seed"] = [1]
    (tmp_path / "results.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=r"results\.json cannot be read .*`seed`"):
        read_result(tmp_path)


def test_a_result_of_rewards_that_are_not_finite_can_be_written_and_read(tmp_path, make_record):
    result = EvaluationResult(
        settings={"model": {"name": "a"}, "environments": {"lake": {}}},
        episodes=[make_record(reward=math.inf)],
        random_success={"lake": None},
        optimal_success={"lake": None},
        usage={},
        timings={},
    )
    write_json(tmp_path / "results.json", result.to_dict())
    again = read_result(tmp_path)
    assert math.isnan(again.episodes[0].reward)
    assert again.to_dict()["summary"]["lake"]["reward"] is None
    assert json.loads((tmp_path / "results.json").read_bytes())["summary"]["lake"]["reward"] is None


def test_compare_results_by_environment_and_over_all(make_result):
    first = make_result(outcomes={"lake": [True, True], "room": [True], "only": [True]})
    second = make_result("b", outcomes={"room": [False], "lake": [False, True]})
    found = compare_results(first, second)
    assert list(found) == ["lake", "room", "all"]
    assert (found["lake"].num_first_only, found["lake"].num_both) == (1, 1)
    assert (found["all"].num_first_only, found["all"].num_pairs) == (2, 3)
    single = make_result("b", outcomes={"room": [False]})
    assert list(compare_results(first, single)) == ["room"]


def test_compare_results_refuses_what_is_no_pair(make_result):
    result = make_result()
    with pytest.raises(ValueError, match=r"environment that both models played, got .*chess"):
        compare_results(result, make_result(outcomes={"chess": [True]}))
    with pytest.raises(ValueError, match=r"environment 'lake' is .*for one model and .*'size': 9"):
        compare_results(result, make_result(kwargs={"size": 9}))
    with pytest.raises(ValueError, match="`max_turns` is 5 for one model and 4 for the other"):
        compare_results(result, make_result(max_turns=4))
    # How a model samples is its own affair.
    assert compare_results(result, make_result(temperature=1.0, max_new_tokens_per_turn=8))


def test_versions_name_what_decides_the_outcome():
    versions = list_versions()
    assert {"python", "torch", "transformers", "gymnasium", "numpy"} <= set(versions)
