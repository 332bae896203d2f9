import json

import pytest
import torch
from peft import PeftModel, get_peft_model
from transformers import Qwen2ForCausalLM

from tests.processes import run_script
from tests.training import (
    assert_same_tensors,
    change,
    copy_model,
    copy_tensors,
    logits,
    make_lora,
    reference_logits,
    train_logs,
)

# Each of two processes makes a start of its own, and changes it once the trainer is made; DDP lets
# both go on from the first one's.
OWN_STARTS = """
import json, sys
import torch
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.tiny import load_tiny_policy

torch.set_num_threads(1)
def change(seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))

model, tokenizer = load_tiny_policy()
args = StarPOConfig(
    sys.argv[1], num_env_groups=4, num_generations=4, enable_think=False, beta=0.1,
    max_new_tokens_per_turn=16, max_trajectory_tokens=1200, max_steps=2, learning_rate=1e-3,
    per_device_train_batch_size=2, gradient_accumulation_steps=4, gradient_checkpointing=False,
    save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True,
)
change(args.process_index)
trainer = StarPOTrainer(model, args, env="ragen/Bandit-v0", processing_class=tokenizer)
change(10 + args.process_index)
trainer.train()
kl = [entry["kl"] for entry in trainer.state.log_history if "kl" in entry]
reference = sum(p.double().abs().sum().item() for p in trainer.ref_model.parameters())
with open(f"{sys.argv[1]}/rank{args.process_index}.json", "w") as file:
    json.dump([kl, reference], file)
"""


def kl_of(trainer):
    return [logs["kl"] for logs in train_logs(trainer)]


@pytest.mark.parametrize("option", ["beta", "kl_in_reward_coef"])
@pytest.mark.parametrize("has_name", [True, False])
def test_weights_changed_in_memory_are_the_reference(
    make_trainer, start, saved_start, has_name, option
):
    model = copy_model(start[0])
    if has_name:
        model = type(model).from_pretrained(saved_start)
    estimator = {"kl_in_reward_coef": "gae", "beta": "grpo"}[option]
    trainer = make_trainer(
        model=change(model), advantage_estimator=estimator, max_steps=2, **{option: 0.1}
    )
    before = copy_tensors(trainer.model.named_parameters())
    trainer.train()
    assert kl_of(trainer)[0] == pytest.approx(0.0, abs=1e-6)
    assert kl_of(trainer)[1] > 1e-5
    # It stays where it is, is no part of the policy, and nothing is trained in it.
    assert_same_tensors(dict(trainer.ref_model.named_parameters()), before, atol=0.0)
    assert not any(p.requires_grad for p in trainer.ref_model.parameters())
    policy = {p.data_ptr() for p in trainer.model.parameters()}
    assert policy.isdisjoint(p.data_ptr() for p in trainer.ref_model.parameters())


@pytest.mark.parametrize("kind", ["name", "model", "adapter"])
def test_weights_changed_after_the_trainer_was_made_are_the_reference(
    make_trainer, start, saved_start, kind
):
    model = saved_start if kind == "name" else copy_model(start[0])
    if kind == "adapter":
        model = get_peft_model(model, make_lora())
    trainer = make_trainer(model=model, beta=0.1, max_steps=2, learning_rate=1e-2)
    change(trainer.model)
    trainer.train()
    assert kl_of(trainer)[0] == pytest.approx(0.0, abs=1e-6)
    assert kl_of(trainer)[1] > 1e-5


def test_an_adapter_changed_after_the_trainer_was_made_is_refused_where_the_base_is_the_reference(
    make_trainer,
):
    trainer = make_trainer(peft_config=make_lora(), beta=0.1)
    change(trainer.model)
    with pytest.raises(
        ValueError, match=r"`model` must start .* Pass a model that has the adapter"
    ):
        trainer.train()
    without_kl = make_trainer(peft_config=make_lora())
    change(without_kl.model)
    without_kl.train()


def begin(start, kind):
    """What a run begins with: a model, an adapter that was warmed up, or one that is new."""
    model = copy_model(start[0])
    if kind == "base":
        return {"model": model, "peft_config": make_lora()}
    return {"model": change(get_peft_model(model, make_lora()) if kind == "adapter" else model)}


@pytest.mark.parametrize("option", ["beta", "kl_in_reward_coef"])
@pytest.mark.parametrize("kind", ["model", "adapter", "base"])
def test_the_reference_stays_through_a_second_call_and_a_resumed_run(
    make_trainer, start, kind, option
):
    options = {option: 0.1, "max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    options |= {"learning_rate": 2e-3, "advantage_estimator": "gae"}
    trainer = make_trainer(**begin(start, kind), **options)
    before = logits(trainer.model)
    trainer.train()
    trainer.train()
    resumed = make_trainer(**begin(start, kind), **options | {"max_steps": 3})
    resumed.train(resume_from_checkpoint=True)
    for each in (trainer, resumed):
        torch.testing.assert_close(reference_logits(each), before, rtol=0, atol=0)
        assert (logits(each.model) - before).abs().max() > 1e-3


def test_another_policy_than_the_run_began_with_is_refused_when_it_is_resumed(
    make_trainer, start, tmp_path
):
    def resume(**given):
        trainer = make_trainer(**options | {"max_steps": 2} | given)
        trainer.train(resume_from_checkpoint=checkpoint)

    checkpoint = str(tmp_path / "run/checkpoint-1")
    options = {"beta": 0.1, "max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    make_trainer(model=change(copy_model(start[0])), **options).train()
    message = "`model` must be the policy that the run of .*checkpoint-1' began with"
    for model in (copy_model(start[0]), checkpoint, change(copy_model(start[0]), 0.02001)):
        with pytest.raises(ValueError, match=message):
            resume(model=model)
    resume(model=change(copy_model(start[0])))
    resume(model=copy_model(start[0]), beta=0.0, advantage_estimator="gae")


def test_the_adapter_of_a_checkpoint_is_not_taken_for_where_its_run_began(
    make_trainer, start, tmp_path
):
    checkpoint = str(tmp_path / "run/checkpoint-1")
    options = {"beta": 0.1, "max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    make_trainer(**begin(start, "base"), **options).train()
    adapted = PeftModel.from_pretrained(copy_model(start[0]), checkpoint, is_trainable=True)
    trainer = make_trainer(model=adapted, **options | {"max_steps": 2})
    with pytest.raises(ValueError, match="Pass `model` and `peft_config` as then"):
        trainer.train(resume_from_checkpoint=checkpoint)


def test_a_policy_of_another_trainer_is_not_read_by_the_reference(make_trainer):
    first = make_trainer(beta=0.1, max_steps=2)
    first.train()
    second = make_trainer(model=first.model, beta=0.1)
    ids = torch.arange(4, 16).view(1, -1)
    before = second.ref_model(ids).logits
    change(second.model)
    torch.testing.assert_close(second.ref_model(ids).logits, before, rtol=0, atol=0)


def test_no_weights_are_loaded_twice_by_name(make_trainer, saved_start, monkeypatch):
    loads, load = [], Qwen2ForCausalLM.from_pretrained
    monkeypatch.setattr(
        Qwen2ForCausalLM,
        "from_pretrained",
        lambda *args, **kwargs: loads.append(args) or load(*args, **kwargs),
    )
    trainer = make_trainer(model=saved_start, beta=0.1)
    assert len(loads) == 1
    assert trainer.ref_model is not None


def test_two_processes_have_one_reference(tmp_path):
    def run(num_processes):
        run_script(OWN_STARTS, tmp_path, tmp_path, num_processes=num_processes)
        files = [tmp_path / f"rank{rank}.json" for rank in range(num_processes)]
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    first, second = run(2)
    assert first == second
    # The same reference as of one process, whose start is the first one's.
    assert first[1] == run(1)[0][1]
    assert first[0][0] == pytest.approx(0.0, abs=1e-6)
    assert first[0][1] > 1e-5
