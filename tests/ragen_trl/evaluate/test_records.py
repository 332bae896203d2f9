import dataclasses

import pytest

from ragen_trl.evaluate import EpisodeJob, EpisodeRecord, LocalPlayer, Player


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
