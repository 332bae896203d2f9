import json

import pytest

from ragen_trl import StarPOConfig
from ragen_trl.run_state import STATE_FILE, batch_settings, read_state, write_state

STATE = {"dealer": {"num_dealt": 3}, "iteration": 2, "batches": {"num_processes": 1}}


def test_state_is_read_as_it_was_written(tmp_path):
    write_state(tmp_path, STATE)
    assert read_state(tmp_path) == STATE


def test_folder_without_a_state_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"holds no {STATE_FILE}.*as `model`"):
        read_state(tmp_path)


def test_state_of_an_older_version_is_refused(tmp_path):
    # As versions wrote it that dealt seeds without a split of levels.
    old = {"num_groups_dealt": 12, "iteration": 3, "num_processes": 1}
    (tmp_path / STATE_FILE).write_text(json.dumps(old), encoding="utf-8")
    with pytest.raises(ValueError, match=r"this version.*\['batches', 'dealer'\].*as `model`"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"gradient_accumulation_steps": 2},
        {"advantage_estimator": "bi_level_gae"},
        {"beta": 0.1},
        {"kl_in_reward_coef": 0.1},
    ],
)
def test_settings_of_batches_differ_where_batches_would(change, tmp_path):
    options = {"output_dir": str(tmp_path), "report_to": "none"}
    settings = batch_settings(StarPOConfig(**options), num_processes=1)
    assert json.loads(json.dumps(settings)) == settings
    assert settings == batch_settings(StarPOConfig(**options, max_steps=7), num_processes=1)
    assert settings != batch_settings(StarPOConfig(**options), num_processes=2)
    assert settings != batch_settings(StarPOConfig(**options, **change), num_processes=1)
