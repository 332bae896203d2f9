import copy

import pytest
import torch
from peft import get_peft_model

from ragen_trl.environments import EnvPool, EnvSpec
from ragen_trl.evaluate import EpisodeJob, LocalPlayer
from ragen_trl.evaluate.local_player import (
    find_end_ids,
    fingerprint_weights,
    load_local_player,
)
from tests.generation_rules import all_rules
from tests.training import BANDIT, LAKE, copy_model, make_lora


def make_jobs(settings, specs=(BANDIT, LAKE), *, samples=2):
    jobs = []
    for spec in specs:
        pool = EnvPool(spec if isinstance(spec, EnvSpec) else EnvSpec(spec), settings.agent_turns)
        jobs += [
            EpisodeJob(pool.name, pool, seed, sample)
            for seed in range(3)
            for sample in range(samples)
        ]
    return jobs


def play(player, jobs):
    records = []
    player.play(jobs, records.append)
    return records


@pytest.fixture
def make_player(start, quick):
    model, tokenizer = start

    def make(settings=None, **options):
        return LocalPlayer(model, tokenizer, name="m", settings=settings or quick(), **options)

    return make


def test_neither_batch_nor_order_changes_an_episode(make_player, quick):
    jobs = make_jobs(quick())
    torch.manual_seed(1)
    whole = play(make_player(batch_size=12), jobs)
    assert [(r.env, r.seed, r.sample) for r in whole] == [
        (job.env, job.seed, job.sample) for job in jobs
    ]
    torch.manual_seed(2)
    assert play(make_player(batch_size=1), jobs) == whole
    assert play(make_player(batch_size=5), jobs[::-1]) == whole[::-1]
    # On this ice nothing is drawn but tokens: the samples of a start state differ in these.
    lake = [(r.reward, r.response_tokens, r.turns, r.actions) for r in whole[6:]]
    assert any(first != second for first, second in zip(lake[::2], lake[1::2], strict=True))
    assert len(set(lake)) > 2


def test_the_reference_engine_plays_the_same_episodes(start, quick):
    trained, tokenizer = start
    jobs = make_jobs(quick())
    model = copy_model(trained)
    whole = play(LocalPlayer(model, tokenizer, name="m", settings=quick()), jobs)
    model.config._attn_implementation = "flex_attention"  # the cached engine refuses it
    player = LocalPlayer(model, tokenizer, name="m", settings=quick(), batch_size=4)
    model.config._attn_implementation = "sdpa"
    assert player._engine.name == "reference"
    assert play(player, jobs) == whole
    # What the model was published with is no part of the evaluation.
    for name, value in all_rules().items():
        setattr(model.generation_config, name, value)
    assert play(player, jobs) == whole
    cached = LocalPlayer(model, tokenizer, name="m", settings=quick())
    assert cached._engine.name == "transformers"
    assert play(cached, jobs) == whole


def test_greedy_play_and_settings_reach_the_engine(make_player, quick):
    greedy = [play(make_player(quick(temperature=0.0)), make_jobs(quick())) for _ in range(2)]
    assert greedy[0] == greedy[1]
    short = play(make_player(quick(max_new_tokens_per_turn=2)), make_jobs(quick()))
    assert all(record.response_tokens <= 2 * record.turns for record in short)
    assert not any(record.valid_turns for record in short)


def test_template_arguments_reach_what_the_model_reads(start, quick):
    model, tokenizer = start[0], copy.deepcopy(start[1])
    tokenizer.chat_template += "{% if note %}{{ note }}{% endif %}"
    plain, noted = quick(), quick(chat_template_kwargs={"note": "no no no"})
    jobs = make_jobs(plain)
    players = [LocalPlayer(model, tokenizer, name="m", settings=s) for s in (plain, noted)]
    assert play(players[0], jobs) != play(players[1], jobs)
    prompt = tokenizer.decode(players[1]._chat.encode_start("hello"))
    assert prompt == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nno no no"


@pytest.mark.parametrize(
    ("options", "is_said"),
    [
        ({"think": True}, True),
        ({"think": False}, False),
        ({"think": True, "chat_template_kwargs": {"closed": True}}, False),
    ],
)
def test_a_template_that_opens_a_think_block_is_said(start, quick, caplog, options, is_said):
    model, tokenizer = start[0], copy.deepcopy(start[1])
    tokenizer.chat_template += "<think>{% if closed %}</think>{% endif %}"
    LocalPlayer(model, tokenizer, name="m", settings=quick(**options))
    assert ("The chat template opens `<think>` itself" in caplog.text) is is_said
    assert ("or `think=False`" in caplog.text) is is_said


def test_a_prompt_without_room_for_a_reply_is_an_error_and_no_failed_episode(make_player, quick):
    (record,) = play(make_player(quick(max_trajectory_tokens=20)), make_jobs(quick(), [BANDIT])[:1])
    assert record.error.startswith("the first prompt has ")
    assert record.error.endswith("`max_trajectory_tokens` is 20")


def test_an_adapter_folder_plays_like_the_model_that_it_was_saved_from(
    saved_start, quick, tmp_path
):
    base = load_local_player(saved_start, settings=quick())
    adapted = get_peft_model(load_local_player(saved_start, settings=quick())._model, make_lora())
    torch.manual_seed(3)
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.5)
    adapted.save_pretrained(tmp_path / "adapter")
    base._tokenizer.save_pretrained(tmp_path / "adapter")
    player = load_local_player(str(tmp_path / "adapter"), settings=quick())
    direct = LocalPlayer(adapted, base._tokenizer, name="m", settings=quick())
    jobs = make_jobs(quick())
    records = play(player, jobs)
    assert records == play(direct, jobs)
    # Were the adapter not loaded, this would be the same.
    assert records != play(base, jobs)
    assert player.name == str(tmp_path / "adapter")
    assert player.identity()["weights"] != base.identity()["weights"]


def test_identity_tells_a_model_from_itself_after_training(make_player, start):
    identity = make_player().identity()
    assert identity == make_player().identity()
    assert identity["dtype"] == "float32"
    trained, _ = start
    model = copy_model(trained)
    assert fingerprint_weights(model) == identity["weights"]
    with torch.no_grad():
        model.model.norm.weight += 1e-6
    assert fingerprint_weights(model) != identity["weights"]
    whole = fingerprint_weights(model)
    assert fingerprint_weights(model.to(torch.bfloat16)) != whole


def test_end_ids_are_those_of_training(make_trainer, start):
    assert find_end_ids(*start) == make_trainer().eos_token_ids


@pytest.mark.parametrize("model", ["no/such-model", "/no/such/folder", "not a name"])
def test_a_model_that_does_not_exist_is_named(quick, model):
    with pytest.raises(ValueError, match=f"`model` must be .* and '{model}' could not be loaded"):
        load_local_player(model, settings=quick())


def test_arguments_that_cannot_work_are_refused(make_player, quick):
    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        make_player(batch_size=0)
    with pytest.raises(ValueError, match="`max_trajectory_tokens` must be at most 4096"):
        make_player(quick(max_trajectory_tokens=5000))
