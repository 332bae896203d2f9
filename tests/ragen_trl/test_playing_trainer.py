import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest
import torch
from peft import PromptTuningConfig

from ragen_envs.curriculum import Curriculum
from ragen_trl import EnvSpec, StarPOTrainer
from ragen_trl.engines import CachedEngine, JointEngine, Reply
from ragen_trl.loading import load_policy
from ragen_trl.rollout import RolloutTimer
from ragen_trl.start_states import GroupStart
from tests.fakes import CountedEnvs, ScriptedTextEnv, Step
from tests.generation_rules import all_rules
from tests.training import BANDIT, assert_same_tensors, copy_model, make_lora, train_logs


def test_evaluate_is_repeatable_and_leaves_training_randomness_alone(make_trainer, tmp_path):
    trainer = make_trainer()
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first, second = trainer.evaluate(), trainer.evaluate()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert {k: v for k, v in first.items() if "runtime" not in k} == {
        k: v for k, v in second.items() if "runtime" not in k
    }
    for name in ("ragen/Bandit-v0", "ragen/FrozenLake-v0"):
        stem = f"eval_{name}_success_rate"
        assert first[f"{stem}_low"] <= first[stem] <= first[f"{stem}_high"]
        assert first[f"eval_{name}_success_vs_optimal"] == first[stem]
    (bandit, lake) = sorted((tmp_path / "run" / "trajectories").glob("eval-*.jsonl"))
    for path, name in ((bandit, "ragen/Bandit-v0"), (lake, "ragen/FrozenLake-v0")):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert tuple(r["seed"] for r in records) == trainer.eval_panel.seeds(name)
        assert min(r["seed"] for r in records) >= 123


def test_evaluate_during_training_does_not_change_training(make_trainer):
    ends = []
    for options in (
        {},
        {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4},
    ):
        trainer = make_trainer(max_steps=2, **options)
        torch.manual_seed(1)
        trainer.train()
        ends.append({n: p.detach() for n, p in trainer.model.named_parameters()})
    assert_same_tensors(ends[0], ends[1], atol=0.0)


def test_evaluate_with_named_environments_and_several_samples(make_trainer):
    trainer = make_trainer(env=BANDIT, num_generations_eval=3)
    metrics = trainer.evaluate()
    assert 0.0 <= metrics["eval_pass@3"] <= 1.0
    assert metrics["eval_num_episodes"] == 18
    with pytest.raises(ValueError, match="eval_env"):
        trainer.evaluate(eval_dataset=[1])


def test_rollout_groups_share_the_start_and_differ_in_luck(make_trainer):
    trainer = make_trainer(env=BANDIT)
    trajectories = trainer.rollout(seeds=[5, 5, 6], num_generations=24, temperature=1.0)
    assert [t.group_id for t in trajectories] == [0] * 24 + [1] * 24 + [2] * 24
    first = {tuple(t.prompt_ids) for t in trajectories[:48]}
    assert len(first) == 1
    paid = {sum(t.turn_rewards) for t in trajectories if t.success}
    assert paid == {0.0, 1.0}


def test_rollout_deals_seeds_round_robin_over_environments(make_trainer):
    trainer = make_trainer()
    trajectories = trainer.rollout(seeds=range(4), num_generations=1, temperature=1.0)
    lake, bandit = "ragen/FrozenLake-v0", "ragen/Bandit-v0"
    assert [t.env_id for t in trajectories] == [bandit, lake, bandit, lake]
    other = trainer.rollout("ragen/Sokoban-v0", seeds=[1, 2], num_generations=2, temperature=1.0)
    assert [(t.env_id, t.seed) for t in other] == [("ragen/Sokoban-v0", s) for s in (1, 1, 2, 2)]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("seeds", {"seeds": [-1]}),
        ("seeds", {"seeds": 5}),
        ("num_generations", {"num_generations": 0}),
        ("temperature", {"temperature": -1.0}),
    ],
)
def test_rollout_refuses_what_no_rollout_could_mean(make_trainer, name, arguments):
    trainer = make_trainer(env=BANDIT)
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        trainer.rollout(**{"seeds": [1], "num_generations": 1, "temperature": 1.0, **arguments})
    assert trainer.rollout(seeds=[], num_generations=2, temperature=1.0) == []


@pytest.mark.parametrize(
    ("name", "value"), [("num_generations", "2"), ("num_generations", 1.5), ("temperature", None)]
)
def test_rollout_refuses_arguments_of_the_wrong_type_by_name(make_trainer, name, value):
    arguments = {"seeds": [1], "num_generations": 1, "temperature": 1.0, name: value}
    with pytest.raises(TypeError, match=f"`{name}` must be .*got {value!r}"):
        make_trainer(env=BANDIT).rollout(**arguments)


def test_environment_failure_in_training_names_environment_seed_and_turn(make_trainer):
    def failing():
        return ScriptedTextEnv([Step(reward=math.nan)])

    trainer = make_trainer(env=failing)
    with pytest.raises(RuntimeError, match=r"seed 1000\d .*turn \d"):
        trainer.train()


def test_custom_environment_trains_from_a_callable(make_trainer):
    def lake():
        return gym.make("ragen/FrozenLake-v0", is_slippery=False, size=(3, 3))

    trainer = make_trainer(env=lake)
    trainer.train()
    assert train_logs(trainer)[0]["rollout/turns"] >= 1


def test_constructor_refuses_what_cannot_work(make_trainer, start):
    trained, tokenizer = start
    with pytest.raises(ValueError, match="`env` must be given"):
        StarPOTrainer(trained, processing_class=tokenizer)
    with pytest.raises(TypeError, match="`args` must be a `StarPOConfig`"):
        StarPOTrainer(trained, {"max_steps": 1}, env=BANDIT, processing_class=tokenizer)
    with pytest.raises(ValueError, match="`max_trajectory_tokens` must be at most 4096"):
        make_trainer(max_trajectory_tokens=5000)
    with pytest.raises(ValueError, match="first prompt has"):
        make_trainer(max_trajectory_tokens=40).train()


def test_engines_and_row_budgets_play_the_same_greedy_episodes(make_trainer):
    played = [
        make_trainer(**options).rollout(seeds=range(6), num_generations=2, temperature=0)
        for options in (
            {"rollout_engine": "reference"},
            {"rollout_engine": "transformers"},
            {"rollout_engine": "transformers", "rollout_row_budget": 3},
        )
    ]
    ids = [[t.completion_ids for t in trajectories] for trajectories in played]
    assert ids[0] == ids[1] == ids[2]
    assert len(played[0]) == 12
    for reference, cached in zip(played[0], played[1], strict=True):
        assert cached.logps == pytest.approx(reference.logps, abs=1e-4)


def test_row_budget_bounds_evaluations_as_well(make_trainer, monkeypatch):
    expected = make_trainer(env=BANDIT).evaluate()
    trainer = make_trainer(env=BANDIT, rollout_row_budget=4)
    sizes = []
    start = CachedEngine.start

    def counting_start(engine, prompts, luck_seeds=None):
        sizes.append(len(prompts))
        return start(engine, prompts, luck_seeds)

    monkeypatch.setattr(CachedEngine, "start", counting_start)
    metrics = trainer.evaluate()
    assert sizes == [4, 2]
    assert metrics["eval_success_rate"] == expected["eval_success_rate"]


def test_cache_memory_of_a_rollout_is_that_of_its_largest_wave(make_trainer):
    trainer = make_trainer(env=BANDIT, rollout_row_budget=4)
    groups = [GroupStart(trainer._pools[0], seed) for seed in range(5)]
    timer = RolloutTimer()
    trainer._play(groups, num_generations=1, temperature=1.0, timer=timer)
    alone = RolloutTimer()
    trainer._play(groups[4:], num_generations=1, temperature=1.0, timer=alone)
    # Four rows, then one.
    assert timer.cache_bytes >= 3 * alone.cache_bytes > 0


@pytest.mark.parametrize("was_training", [False, True])
def test_rollout_leaves_the_model_in_the_mode_it_was_in(make_trainer, was_training):
    trainer = make_trainer(env=BANDIT)
    trainer.model.train(was_training)
    trainer.rollout(seeds=[1], num_generations=1, temperature=1.0)
    assert trainer.model.training is was_training


def test_answers_end_replies_when_asked(make_trainer):
    tokenizer = make_trainer().processing_class
    end = tokenizer.eos_token_id
    for engine in ("reference", "transformers"):
        trainer = make_trainer(stop_at_answer=True, rollout_engine=engine)
        played = trainer.rollout(seeds=range(6), num_generations=2, temperature=0)
        replies = [turn for t in played for turn in t.turns if "</answer>" in turn.reply]
        assert len(replies) > 3
        assert all(turn.reply.endswith("</answer>") for turn in replies)
        # The end-of-turn token behind the answer is the template's, and not trained.
        first = played[0]
        assert end not in [
            token for token, m in zip(first.completion_ids, first.action_mask, strict=True) if m
        ]


@pytest.mark.parametrize("engine", ["reference", "transformers"])
@pytest.mark.parametrize("uses_lora", [False, True])
def test_rules_of_the_models_generation_settings_play_no_part(
    make_trainer, start, caplog, engine, uses_lora
):
    played = []
    for rules in ({}, all_rules()):
        model = copy_model(start[0])
        own = model.generation_config
        own.update(**rules)
        before = own.to_dict()
        trainer = make_trainer(
            model=model, rollout_engine=engine, peft_config=make_lora() if uses_lora else None
        )
        torch.manual_seed(5)
        trajectories = trainer.rollout(seeds=[1, 2], num_generations=3, temperature=1.0)
        played.append([(t.completion_ids, t.logps) for t in trajectories])
        assert trainer._make_engine(1.0).name == engine
        # What is saved with the model stays what it was.
        assert trainer.model.generation_config is own
        changed = {name for name, value in own.to_dict().items() if value != before[name]}
        assert changed <= {"pad_token_id"}  # TRL's: the tokenizer's
    assert played[0] == played[1]
    assert "which is slower" not in caplog.text


def test_generation_settings_at_which_a_save_would_fail_are_refused(
    make_trainer, saved_start, tmp_path
):
    path = Path(saved_start) / "generation_config.json"
    published = json.loads(path.read_text(encoding="utf-8")) | {"temperature": 0.6}
    path.write_text(json.dumps(published), encoding="utf-8")
    # As they were loaded, they are saved again.
    make_trainer(model=saved_start).save_model()
    assert json.loads((tmp_path / "run" / path.name).read_text("utf-8"))["temperature"] == 0.6
    # The tokenizer's padding, which TRL adds, makes them others.
    del published["pad_token_id"]
    path.write_text(json.dumps(published), encoding="utf-8")
    message = r"`model` must have a `generation_config` without .* says: [^`]*`temperature`"
    with pytest.raises(ValueError, match=message):
        make_trainer(model=saved_start)
    make_trainer(model=saved_start, peft_config=make_lora()).save_model()
    # The remedy that it names.
    model, _ = load_policy(saved_start)
    model.generation_config.do_sample = True
    make_trainer(model=model).save_model()


def test_adapters_that_learn_a_prompt_are_refused(make_trainer):
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    with pytest.raises(ValueError, match="`peft_config` must adapt weights"):
        make_trainer(peft_config=config)


def test_what_the_cached_engine_cannot_do_is_said_and_done_by_the_reference(make_trainer, caplog):
    trainer = make_trainer(generation_kwargs={"suppress_tokens": [7]})
    assert trainer._make_engine(1.0).name == "reference"
    assert "`generation_kwargs` and `cache_implementation` are for" in caplog.text
    assert make_trainer()._make_engine(1.0).name == "transformers"


def test_engine_failure_names_engine_turn_and_rows_and_leaves_a_trainer_that_saves(
    make_trainer, tmp_path
):
    trainer = make_trainer(max_steps=3)
    calls = []

    def fail_late(*args):
        calls.append(1)
        if len(calls) == 30:
            raise MemoryError("no room")

    trainer.model.model.layers[0].register_forward_pre_hook(fail_late)
    with pytest.raises(
        RuntimeError, match=r"Engine 'transformers' failed in turn \d with \d+ rows"
    ):
        trainer.train()
    trainer.save_model()
    trainer.evaluate()
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_log_probabilities_that_vllm_does_not_report_are_not_numbers(make_trainer):
    trainer = make_trainer()
    trainer.use_vllm, trainer.vllm_generation = True, SimpleNamespace()
    trainer._generate_single_turn = lambda *_: ([[5, 6], [7]], [[-0.5, None], [-1.0]])
    first, second = trainer._generate_replies([[1], [2]], 3, 0.7)
    assert (first.ids, second) == ([5, 6], Reply([7], [-1.0]))
    assert first.logps[0] == -0.5
    assert math.isnan(first.logps[1])


def test_missing_log_probabilities_are_refused_where_they_are_the_old_ones(make_trainer, tmp_path):
    trainer = make_trainer(BANDIT, old_logps="rollout", rollout_filter="none")
    trainer.use_vllm, trainer.vllm_generation = True, SimpleNamespace()
    # Half of a group pulls the safe arm, half says nothing of use: there is something to learn.
    pull = trainer._chat.encode_reply("<answer>Phoenix</answer>")
    ids = [pull, [5, 6]]
    trainer._generate_single_turn = lambda prompts, *_: (
        [ids[row % 2] for row in range(len(prompts))],
        [[-0.5] * (len(ids[row % 2]) - 1) + [None] for row in range(len(prompts))],
    )
    message = r"reported none for \d+ of \d+. Use `old_logps='recompute'`"
    with pytest.raises(ValueError, match=message):
        trainer.train()
    trainer.save_model()
    # The rollout is not lost.
    assert list((tmp_path / "run" / "trajectories").glob("train-*.jsonl"))


@pytest.mark.parametrize(
    ("mode", "tensor_parallel", "num_processes", "expected"),
    [
        ("server", 1, 2, True),
        ("colocate", 2, 2, True),
        ("colocate", 1, 2, False),
        ("server", 1, 1, False),
    ],
)
def test_processes_that_share_vllm_call_it_together(
    make_trainer, monkeypatch, mode, tensor_parallel, num_processes, expected
):
    trainer = make_trainer()
    trainer.use_vllm, trainer.vllm_mode = True, mode
    trainer.vllm_tensor_parallel_size = tensor_parallel
    monkeypatch.setattr(trainer.accelerator.state, "num_processes", num_processes)
    engine = trainer._make_engine(1.0)
    assert isinstance(engine, JointEngine) == expected
    assert engine.name == "vllm"


def test_process_that_is_done_takes_part_in_the_calls_of_the_others(make_trainer, monkeypatch):
    trainer = make_trainer(BANDIT)
    trainer.use_vllm, trainer.vllm_mode = True, "server"
    trainer.vllm_generation = SimpleNamespace()
    monkeypatch.setattr(trainer.accelerator.state, "num_processes", 2)
    pull = trainer._chat.encode_reply("<answer>Phoenix</answer>")
    # Rows and most tokens that the other process brings to each call.
    others = iter([(3, 9), (3, 9), (1, 30), (0, 0)])
    calls = []

    def gather(entries):
        return [*entries, next(others)] if entries and isinstance(entries[0], tuple) else entries

    def generate(prompts, *_):
        calls.append((len(prompts), trainer.vllm_generation.max_completion_length))
        return [pull for _ in prompts], [[-0.5] * len(pull) for _ in prompts]

    monkeypatch.setattr("ragen_trl.playing_trainer.gather_object", gather)
    trainer._generate_single_turn = generate
    # The first of two processes plays one group of two, which ends after one turn.
    trajectories = trainer.rollout(seeds=[1, 2], num_generations=2, temperature=1.0)
    assert calls == [(3, 20), (3, 9), (1, 30)]
    assert [t.completion_ids for t in trajectories] == [pull, pull]


@pytest.mark.parametrize("engine", ["transformers", "reference"])
def test_replies_end_where_the_borrowed_template_ends_a_turn(make_trainer, start, engine):
    model, tokenizer = copy_model(start[0]), copy.deepcopy(start[1])
    end = tokenizer.eos_token_id
    # As a base model with a borrowed template: it ends texts, and turns not.
    tokenizer.eos_token = tokenizer.pad_token
    model.generation_config.eos_token_id = tokenizer.pad_token_id
    trainer = make_trainer(model=model, processing_class=tokenizer, rollout_engine=engine)
    trajectories = trainer.rollout(seeds=range(4), num_generations=4, temperature=1.0)
    for trajectory in trajectories:
        for turn in range(len(trajectory.turns)):
            tokens = zip(trajectory.completion_ids, trajectory.turn_index, strict=True)
            reply_ids = [token_id for token_id, index in tokens if index == turn]
            assert reply_ids.index(end) == len(reply_ids) - 1


def test_records_that_are_not_written_are_not_made_either(make_trainer, tmp_path):
    # As in every process but the main one.
    trainer = make_trainer(log_trajectories=False)
    records = iter([("unread", {})])
    trainer._write("train-00000", records)
    assert list(records) == [("unread", {})]
    trainer.train()
    assert not (tmp_path / "run" / "trajectories").exists()


@pytest.mark.parametrize("enable_think", [True, False])
def test_template_that_opens_a_think_block_is_said(make_trainer, start, caplog, enable_think):
    tokenizer = copy.deepcopy(start[1])
    tokenizer.chat_template += "<think>"
    make_trainer(BANDIT, processing_class=tokenizer, enable_think=enable_think)
    text = "The chat template opens `<think>` itself"
    assert (text in caplog.text) is enable_think


def test_environments_are_closed_after_every_use_and_made_again_for_the_next(make_trainer):
    train, other, ours = CountedEnvs(), CountedEnvs(), CountedEnvs()
    trainer = make_trainer(train, eval_env=other, max_steps=2, eval_strategy="steps", eval_steps=1)
    trainer.train()
    assert (train.num_open, other.num_open) == (0, 0)
    assert train.num_made >= 16
    made = train.num_made
    trainer.train()
    assert train.num_open == 0
    assert train.num_made > made
    trainer.evaluate()
    trainer.rollout(seeds=[1], num_generations=2, temperature=1.0)
    trainer.rollout(env=ours, seeds=[1], num_generations=2, temperature=1.0)
    trainer.eval_panel.random_success(trainer.eval_panel.names[0])
    assert (train.num_open, other.num_open, ours.num_open) == (0, 0, 0)
    assert ours.num_made == 2


def test_environments_stay_open_between_the_rollouts_and_evaluations_of_a_training(make_trainer):
    door = CountedEnvs()
    trainer = make_trainer(door, max_steps=3, eval_strategy="steps", eval_steps=1, eval_episodes=16)
    trainer.train()
    # Sixteen episodes side by side, in training as in evaluation.
    assert door.num_made == 16


def test_environments_are_closed_after_an_error(make_trainer):
    door = CountedEnvs(script=[Step(error=OSError("disk"))])
    trainer = make_trainer(door)
    for call in (trainer.train, trainer.evaluate):
        with pytest.raises(RuntimeError, match="OSError: disk"):
            call()
        assert door.num_open == 0


@pytest.mark.parametrize(
    "break_it",
    [
        lambda options, _: options.update(eval_env="ragen/Nonsense-v0"),
        lambda options, _: setattr(options["processing_class"], "chat_template", None),
        lambda options, folder: options.update(model=folder, processing_class=None),
        lambda options, folder: options.update(critic_model_name_or_path=folder),
        lambda options, _: options.update(max_trajectory_tokens=10**6),
        lambda options, _: options.update(
            env=replace(options["env"], curriculum=Curriculum([(1, 2), (3, 4)]))
        ),
    ],
    ids=["evaluation", "template", "model", "critic", "check", "curriculum"],
)
def test_environments_are_closed_where_the_trainer_cannot_be_built(
    make_trainer, start, tmp_path, break_it
):
    train, other = CountedEnvs(), CountedEnvs()
    options = {
        "env": EnvSpec(train),
        "eval_env": other,
        "processing_class": copy.deepcopy(start[1]),
    }
    break_it(options, str(tmp_path))
    with pytest.raises((OSError, ValueError, gym.error.NameNotFound)):
        make_trainer(**options)
    assert train.num_made == 1
    assert (train.num_open, other.num_open) == (0, 0)
