import json

import gymnasium as gym
import pytest
import torch
from gymnasium import spaces

from ragen_envs.splits import Splits
from ragen_trl import EnvSpec, evaluate
from ragen_trl.evaluate import EpisodeRecord, EvaluationSettings
from ragen_trl.evaluate.evaluating import list_jobs
from ragen_trl.evaluation import EvaluationPanel
from tests.fakes import CountedEnvs, ScriptedTextEnv, Step
from tests.processes import run_script
from tests.training import BANDIT, LAKE

ENVS = {"bandit": BANDIT, "lake": LAKE}

IN_PROCESSES = """
import sys
import torch
from ragen_trl import EnvSpec, evaluate
from ragen_trl.evaluate import EvaluationSettings

torch.set_num_threads(1)
model, output, batch_size = sys.argv[1:]
lake = EnvSpec("ragen/FrozenLake-v0", kwargs={"is_slippery": False})
settings = EvaluationSettings(
    episodes=5, samples=2, think=False, max_new_tokens_per_turn=20, max_trajectory_tokens=1200,
    temperature=1.0, validation_share=0.0,
)
result = evaluate(
    model, {"bandit": "ragen/Bandit-v0", "lake": lake}, settings=settings, output=output,
    batch_size=int(batch_size),
)
assert len(result.episodes) == 20
"""


class CountingPlayer:
    """Solves odd seeds; stops, or reports an error, where it is told to."""

    name = "counting"

    def __init__(self, *, stops_after=None, fails_at=()):
        self.played = []
        self._stops_after, self._fails_at = stops_after, fails_at

    def play(self, jobs, on_episode):
        for job in jobs:
            if len(self.played) == self._stops_after:
                raise KeyboardInterrupt
            key = (job.env, job.seed, job.sample)
            self.played.append(key)
            error = "503" if job.seed in self._fails_at else None
            on_episode(EpisodeRecord(*key, job.seed % 2 == 1, 0.5, 1, 1, 1, 1, 4, error))

    def usage(self):
        return {"tokens": 10.0 * len(self.played)}


def without_timings(folder):
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert content.pop("timings")["seconds"] > 0
    return content


def num_processes(folder):
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return content["timings"]["num_processes"]


def test_list_jobs_names_every_episode_once():
    pools = {"a": "pool a", "b": "pool b"}
    panel = EvaluationPanel(pools, first_seed=7, num_seeds=2, validation_share=0.0)
    assert list_jobs(panel, 2) == [
        (env, f"pool {env}", seed, sample) for env in "ab" for seed in (7, 8) for sample in (0, 1)
    ]


def test_start_states_are_on_the_validation_side_by_default(quick):
    settings = quick(validation_share=EvaluationSettings().validation_share, episodes=4)
    result = evaluate(CountingPlayer(), "ragen/Sokoban-v0", settings=settings)
    seeds = [record.seed for record in result.episodes]
    assert tuple(seeds) == Splits("ragen/Sokoban-v0").validation_seeds(4, first_seed=123)


def test_batch_sizes_and_processes_give_identical_files(saved_start, quick, tmp_path):
    folders = [tmp_path / f"batch{size}" for size in (1, 3, 8)]
    for size, folder in zip((1, 3, 8), folders, strict=True):
        torch.manual_seed(size)
        evaluate(saved_start, ENVS, settings=quick(samples=2), output=folder, batch_size=size)
    folders.append(tmp_path / "two")
    run_script(IN_PROCESSES, tmp_path, saved_start, tmp_path / "two", 3, num_processes=2)
    # Two that knew nothing of each other would write the same as well.
    assert [num_processes(folder) for folder in folders] == [1, 1, 1, 2]
    contents = [without_timings(folder) for folder in folders]
    assert all(content == contents[0] for content in contents[1:])
    texts = [(folder / "episodes.jsonl").read_bytes() for folder in folders]
    assert all(text == texts[0] for text in texts)
    assert not list((tmp_path / "two").glob("*rank*"))
    episodes = contents[0]["episodes"]
    keys = [(e["env"], e["seed"], e["sample"]) for e in episodes]
    seeds = {env: sorted({key[1] for key in keys if key[0] == env}) for env in ENVS}
    assert all(len(seeds[env]) == 5 for env in ENVS)
    assert keys == [(env, seed, sample) for env in ENVS for seed in seeds[env] for sample in (0, 1)]
    # Else nothing was drawn, and everything above would hold of any code.
    assert len({(e["reward"], e["turns"], e["response_tokens"]) for e in episodes}) > 4


def test_the_trainers_evaluation_and_the_command_play_the_same(make_trainer, quick, tmp_path):
    options = {"eval_episodes": 12, "num_generations_eval": 2, "eval_temperature": 1.0}
    trainer = make_trainer(env=(BANDIT, LAKE), max_steps=2, **options)
    trainer.train()
    logged = trainer.evaluate()
    trainer.save_model(tmp_path / "trained")
    result = evaluate(
        str(tmp_path / "trained"),
        [BANDIT, LAKE],
        settings=quick(episodes=12, samples=2, validation_share=0.1),
        batch_size=7,
    )
    for name, summary in result.summaries.items():
        stem = f"eval_{name}_"
        assert logged[f"{stem}success_rate"] == summary.success_rate
        assert logged[f"{stem}success_rate_low"] == summary.success_rate_low
        assert logged[f"{stem}pass@2"] == summary.pass_at_k[2]
        assert logged[f"{stem}reward"] == pytest.approx(summary.reward, abs=1e-12)
        assert logged[f"{stem}rollout/response_length"] == summary.response_length
    # Episode by episode, not only in the mean.
    (path,) = (tmp_path / "run" / "trajectories").glob("eval-00002-*Lake*.jsonl")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    written = [(line["seed"], line["success"], line["action_tokens"]) for line in lines]
    own = [r for r in result.episodes if r.env == "ragen/FrozenLake-v0"]
    assert written == [(r.seed, r.success, r.response_tokens) for r in own]
    assert 0 < sum(r.success for r in own) < len(own)


def test_an_interrupted_evaluation_goes_on_where_it_was(quick, tmp_path):
    settings = quick(samples=2)
    whole = CountingPlayer()
    evaluate(whole, ENVS, settings=settings, output=tmp_path / "whole")
    path = tmp_path / "parts" / "episodes.jsonl"
    for num_done, num_more in ((0, 7), (6, 4)):
        player = CountingPlayer(stops_after=num_more)
        with pytest.raises(KeyboardInterrupt):
            evaluate(player, ENVS, settings=settings, output=tmp_path / "parts")
        assert player.played == whole.played[num_done : num_done + num_more]
        assert not (tmp_path / "parts" / "results.json").exists()
        # The last line was cut on its way to the disk.
        path.write_bytes(path.read_bytes()[:-9])
    last = CountingPlayer()
    result = evaluate(last, ENVS, settings=settings, output=tmp_path / "parts")
    assert last.played == whole.played[9:]
    assert result.timings["num_episodes_played"] == 11
    contents = [without_timings(tmp_path / name) for name in ("whole", "parts")]
    for content in contents:
        content.pop("usage")
    assert contents[0] == contents[1]
    idle = CountingPlayer()
    evaluate(idle, ENVS, settings=settings, output=tmp_path / "parts")
    assert idle.played == []


def test_a_local_model_goes_on_with_the_same_episodes(saved_start, quick, tmp_path):
    whole = evaluate(saved_start, LAKE, settings=quick(), output=tmp_path / "whole")
    parts = tmp_path / "parts"
    evaluate(saved_start, LAKE, settings=quick(), output=parts)
    lines = (parts / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (parts / "episodes.jsonl").write_bytes(lines[0] + lines[3] + lines[4][:12])
    again = evaluate(saved_start, LAKE, settings=quick(), output=parts)
    assert again.timings["num_episodes_played"] == 3
    assert again.episodes == whole.episodes
    assert without_timings(parts) == without_timings(tmp_path / "whole")


def test_errors_are_counted_apart_and_tried_again(quick, tmp_path):
    failing = CountingPlayer(fails_at=(124, 125))
    result = evaluate(failing, BANDIT, settings=quick(), output=tmp_path)
    summary = result.summaries[BANDIT]
    # Left are 123, 126, 127, of which two are odd.
    assert (summary.num_episodes, summary.num_errors) == (3, 2)
    assert summary.success_rate == pytest.approx(2 / 3)
    assert result.to_dict()["episodes"][1]["error"] == "503"
    assert result.usage == {"tokens": 50.0}
    healthy = CountingPlayer()
    result = evaluate(healthy, BANDIT, settings=quick(), output=tmp_path)
    assert healthy.played == [(BANDIT, 124, 0), (BANDIT, 125, 0)]
    assert result.summaries[BANDIT].num_errors == 0


def test_other_settings_model_or_environments_need_another_folder(quick, tmp_path, saved_start):
    evaluate(CountingPlayer(), BANDIT, settings=quick(), output=tmp_path)
    with pytest.raises(ValueError, match="`seed` was 123 and is 5 now"):
        evaluate(CountingPlayer(), BANDIT, settings=quick(seed=5), output=tmp_path)
    with pytest.raises(ValueError, match="`environments` was"):
        evaluate(CountingPlayer(), LAKE, settings=quick(), output=tmp_path)
    arms = EnvSpec(BANDIT, kwargs={"low_arm_name": "Teacher"})
    with pytest.raises(ValueError, match="`environments` was"):
        evaluate(CountingPlayer(), arms, settings=quick(), output=tmp_path)
    with pytest.raises(ValueError, match="`model` was"):
        evaluate(saved_start, BANDIT, settings=quick(), output=tmp_path)


def test_references_are_measured_on_the_same_start_states(quick):
    result = evaluate(CountingPlayer(), ENVS, settings=quick(episodes=40))
    assert result.optimal_success["bandit"] == 1.0
    random_play = result.random_success["bandit"]
    assert random_play.low < 0.5 < random_play.high
    again = evaluate(CountingPlayer(), ENVS, settings=quick(episodes=40))
    assert again.random_success == result.random_success


def test_an_environment_from_elsewhere_has_no_references(quick):
    def chat():
        return ScriptedTextEnv([Step()] * 9, action_space=spaces.Text(30))

    result = evaluate(CountingPlayer(), chat, settings=quick(episodes=2))
    assert result.random_success == {"chat": None}
    assert result.optimal_success == {"chat": None}
    assert result.settings["environments"]["chat"]["source"] == "chat"


def test_a_failing_environment_is_named_and_loses_nothing(saved_start, quick, tmp_path):
    def broken():
        def fail(env):
            if env.episode_seeds[-1] == 125:
                raise OSError("no disk")

        return ScriptedTextEnv([Step(terminated=True)] * 9, on_reset=fail)

    with pytest.raises(RuntimeError, match="'broken' failed with seed 125 in reset: OSError"):
        evaluate(saved_start, broken, settings=quick(), output=tmp_path, batch_size=1)
    assert len((tmp_path / "episodes.jsonl").read_bytes().splitlines()) == 2


@pytest.mark.parametrize("names", [("door", "other"), None])
def test_environments_are_closed_where_another_cannot_be_made(quick, names):
    door = CountedEnvs()
    envs = [door, "ragen/Nonsense-v0"]
    with pytest.raises(gym.error.NameNotFound):
        evaluate(
            CountingPlayer(),
            envs if names is None else dict(zip(names, envs, strict=True)),
            settings=quick(),
        )
    assert (door.num_made, door.num_open) == (1, 0)


def test_environments_are_closed_where_the_model_cannot_be_loaded(quick, tmp_path):
    door = CountedEnvs()
    with pytest.raises(ValueError, match="`model` must be"):
        evaluate(str(tmp_path), door, settings=quick())
    assert (door.num_made, door.num_open) == (1, 0)
