import dataclasses
import json
import math

import pytest

from ragen_trl.evaluate import EpisodeJob, EpisodeRecord, LocalPlayer, Player
from ragen_trl.evaluate.records import read_record


def test_records_are_written_once_and_have_no_error_by_default(make_record):
    record = make_record(success=True)
    assert record.error is None
    assert EpisodeRecord(**dataclasses.asdict(record)) == record
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.success = False


def test_jobs_are_in_the_order_of_their_fields():
    assert EpisodeJob("lake", None, 7, 2) == ("lake", None, 7, 2)


def test_the_local_player_has_what_the_protocol_asks():
    wanted = {name for name in vars(Player) if not name.startswith("_")}
    assert wanted == {"play", "usage"}
    assert wanted <= set(vars(LocalPlayer))


def test_record_is_read_as_it_was_written(make_record):
    for record in (make_record(success=True, reward=1.5), make_record(reward=2, error="lost")):
        assert read_record(json.loads(json.dumps(dataclasses.asdict(record)))) == record


def test_record_without_a_finite_reward_is_read_as_one_with_nan(make_record):
    content = dataclasses.asdict(make_record()) | {"reward": None}
    assert math.isnan(read_record(content).reward)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ({"seed": []}, "`seed` .* must be int, got list"),
        ({"sample": True}, "`sample` .* must be int, got bool"),
        ({"success": 1}, "`success` .* must be bool, got int"),
        ({"reward": "1"}, "`reward` .* must be float or int or NoneType, got str"),
        ({"turns": None}, "`turns` .* must be int, got NoneType"),
        ({"error": 5}, "`error` .* must be str or NoneType, got int"),
        ({"env": None}, "`env` .* must be str, got NoneType"),
        ({"mood": "good"}, "mood"),
    ],
)
def test_record_of_other_fields_or_types_is_refused(damage, named, make_record):
    with pytest.raises(TypeError, match=named):
        read_record(dataclasses.asdict(make_record()) | damage)


@pytest.mark.parametrize("content", [None, [], [1], "x", 5, {}, {"seed": 1}])
def test_record_of_something_else_is_refused(content):
    with pytest.raises(TypeError):
        read_record(content)
