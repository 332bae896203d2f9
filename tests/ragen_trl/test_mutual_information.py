import math
import random

import pytest
import torch
from peft import get_peft_model
from transformers import Lfm2Config, Lfm2ForCausalLM, MistralConfig, MistralForCausalLM
from trl.trainer.utils import add_fused_lm_head

from ragen_trl import MutualInformationCallback
from ragen_trl.mutual_information import choose_pairs, cross_score, measure_pairs
from ragen_trl.reasoning import Reasoning
from tests.conversations import VOCABULARY, make_model
from tests.episodes import make_trajectory
from tests.reference import mutual_information as reference
from tests.training import BANDIT, copy_tensors, make_lora, train_logs

SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def make_mistral():
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**SMALL, sliding_window=6)).eval()


def make_lora_model():
    model = make_model()
    add_fused_lm_head(model)
    config = make_lora()
    config.init_lora_weights = False
    return get_peft_model(model, config).eval()


MODELS = {
    "qwen2": make_model,
    "llama": lambda: make_model("llama", tied=False),
    "sliding windows": make_mistral,
    "lora": make_lora_model,
}


def draw_texts(rng, count, *, longest):
    return [
        tuple(rng.randrange(5, VOCABULARY) for _ in range(rng.randint(1, longest)))
        for _ in range(count)
    ]


def log_softmax_of(model, temperature=1.0):
    def log_softmax(ids):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0]
        return torch.log_softmax(logits.double() / temperature, dim=-1).tolist()

    return log_softmax


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("max_cached_tokens", [1, 60, 10**6])
def test_scores_equal_a_fresh_pass_for_every_pair(name, max_cached_tokens):
    rng = random.Random(0)
    prompts, texts = draw_texts(rng, 4, longest=20), draw_texts(rng, 7, longest=9)
    prompts[1] = prompts[1][:1]
    model = MODELS[name]()
    expected = reference.cross_score(log_softmax_of(model), prompts, texts)
    if name != "lora":
        add_fused_lm_head(model)
    scores = cross_score(model, prompts, texts, max_cached_tokens=max_cached_tokens)
    torch.testing.assert_close(scores, torch.tensor(expected).double(), rtol=0, atol=1e-4)


def test_scores_are_those_of_the_temperature():
    model = make_model()
    expected = reference.cross_score(log_softmax_of(model, temperature=0.5), [(7, 8)], [(9, 10)])
    add_fused_lm_head(model, temperature=0.5)
    assert cross_score(model, [(7, 8)], [(9, 10)]).item() == pytest.approx(expected[0][0], abs=1e-4)


def test_every_different_prompt_is_read_once():
    model = make_model()
    add_fused_lm_head(model)
    read = []
    inner = model.forward

    def count(**kwargs):
        if not kwargs.get("fused_lm_head"):
            read.append(tuple(kwargs["input_ids"][0].tolist()))
        return inner(**kwargs)

    model.forward = count
    prompts = [(5, 6, 7), (8, 9, 5)]
    pairs = [Reasoning(prompts[i % 2], (10 + i, 11, 12)) for i in range(8)]
    measure_pairs(model, pairs)
    assert read == [prompt[:-1] for prompt in prompts]


def test_measures_equal_the_definition_over_all_pairs():
    rng = random.Random(1)
    prompts, texts = draw_texts(rng, 3, longest=9), draw_texts(rng, 5, longest=9)
    pairs = [Reasoning(prompts[i % 3], texts[i % 5]) for i in range(11)]
    model = make_model()
    owners = [pair.prompt_ids for pair in pairs]
    thoughts = [pair.reasoning_ids for pair in pairs]
    scores = reference.cross_score(log_softmax_of(model), owners, thoughts)
    add_fused_lm_head(model)
    metrics = measure_pairs(model, pairs)
    whole = reference.measure_information(scores, owners)
    means = [
        [score / len(text) for score in row] for row, text in zip(scores, thoughts, strict=True)
    ]
    per_token = reference.measure_information(means, owners)
    assert metrics == pytest.approx(
        {
            "mi/mutual_information": whole[0],
            "mi/retrieval_accuracy": whole[1],
            "mi/conditional_entropy": whole[2],
            "mi/mutual_information_per_token": per_token[0],
            "mi/conditional_entropy_per_token": per_token[2],
            "mi/num_prompts": 3.0,
        },
        abs=1e-4,
    )


def test_template_collapse_has_no_information_whatever_its_entropy():
    """A model that attends to nothing but the last token says the same after every prompt."""
    model = make_model()
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
    add_fused_lm_head(model)
    rng = random.Random(2)
    prompts = [(*prompt, 5) for prompt in draw_texts(rng, 6, longest=9)]
    pairs = [Reasoning(p, t) for p, t in zip(prompts, draw_texts(rng, 6, longest=9), strict=True)]
    metrics = measure_pairs(model, pairs)
    assert metrics["mi/mutual_information"] == pytest.approx(0.0, abs=1e-4)
    assert metrics["mi/conditional_entropy"] > 1.0
    # The control: the same tokens before a model that does attend.
    attentive = make_model()
    add_fused_lm_head(attentive)
    assert measure_pairs(attentive, pairs)["mi/mutual_information"] < -0.1


def test_chance_of_retrieval_after_template_collapse():
    """Scores that are equal to the last bit make every prompt as good as any other."""
    model = make_model()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    add_fused_lm_head(model)
    pairs = [Reasoning((5 + i, 6), (7, 8 + i)) for i in range(4)]
    metrics = measure_pairs(model, pairs)
    assert metrics["mi/retrieval_accuracy"] == pytest.approx(1 / 4)
    assert metrics["mi/mutual_information"] == pytest.approx(0.0, abs=1e-9)
    assert metrics["mi/conditional_entropy"] == pytest.approx(2 * math.log(VOCABULARY), abs=1e-5)


def test_copying_the_prompt_has_nearly_all_the_information():
    """A model without attention repeats its last token, since embeddings are its output weights."""
    model = make_model()
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(20 * torch.eye(VOCABULARY)[:, :32])
    add_fused_lm_head(model)
    pairs = [Reasoning((40, 5 + i), (5 + i,) * 3) for i in range(8)]
    metrics = measure_pairs(model, pairs)
    assert metrics["mi/mutual_information"] == pytest.approx(math.log(8), abs=1e-3)
    assert metrics["mi/retrieval_accuracy"] == 1.0


def test_model_that_keeps_other_things_than_keys_and_values_is_refused():
    torch.manual_seed(0)
    config = Lfm2Config(**SMALL, layer_types=["conv", "full_attention"])
    model = Lfm2ForCausalLM(config).eval()
    add_fused_lm_head(model)
    with pytest.raises(ValueError, match="`model` must keep keys and values in every layer"):
        cross_score(model, [(5, 6)], [(7,)])


def test_pairs_are_dealt_evenly_to_the_groups(tiny_tokenizer):
    trajectories = [
        make_trajectory((1, group), (10 * group + member, 3), group_id=group)
        for group in range(3)
        for member in range(4)
    ]

    def choose(most):
        pairs = choose_pairs(trajectories, tiny_tokenizer, think=False, max_pairs=most)
        return [pair.reasoning_ids[0] for pair in pairs]

    assert choose(4) == [0, 10, 20, 1]
    assert choose(9) == [0, 10, 20, 1, 11, 21, 2, 12, 22]
    assert sorted(choose(64)) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]


def test_replies_without_a_thought_make_room_for_others(tiny_tokenizer):
    def reply(text):
        return tiny_tokenizer(text)["input_ids"]

    thoughts = ["<think>a</think>", "a", "<think>b</think>", "<think></think>", "<think>c"]
    trajectories = [make_trajectory((1,), reply(text), group_id=0) for text in thoughts]
    pairs = choose_pairs(trajectories, tiny_tokenizer, think=True, max_pairs=3)
    texts = [tiny_tokenizer.decode(list(pair.reasoning_ids)) for pair in pairs]
    assert texts == ["a", "b", "c"]


@pytest.mark.parametrize(
    "options", [{"every": 0}, {"every": 2.5}, {"max_pairs": 1}, {"max_pairs": 64.5}]
)
def test_arguments_out_of_range_are_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"`{name}` must be a whole number"):
        MutualInformationCallback(**options)


def test_callback_measures_every_nth_rollout_into_the_log(make_trainer):
    trainer = make_trainer(
        BANDIT, max_steps=3, callbacks=[MutualInformationCallback(every=2, max_pairs=5)]
    )
    trainer.train()
    logs = train_logs(trainer)
    measured = [{n for n in entry if n.startswith("mi/")} for entry in logs]
    assert measured[1] == set()
    assert measured[0] == measured[2]
    assert measured[0] == {
        "mi/mutual_information",
        "mi/retrieval_accuracy",
        "mi/conditional_entropy",
        "mi/mutual_information_per_token",
        "mi/conditional_entropy_per_token",
        "mi/num_pairs",
        "mi/num_prompts",
    }
    first = logs[0]
    assert first["mi/num_pairs"] == 5
    assert 1 <= first["mi/num_prompts"] <= 2
    assert first["mi/mutual_information"] <= math.log(2) + 1e-6
    assert 0 < first["time/mutual_information"] < first["time/rollout"] + first["time/update"]
    assert ["time/mutual_information" in entry for entry in logs] == [True, False, True]


class Spy(MutualInformationCallback):
    """Keeps what it was given and what came out."""

    def __init__(self):
        super().__init__(every=1, max_pairs=64)
        self.rollouts, self.metrics = [], []

    def on_rollout_end(self, *positional, trajectories, **named):
        self.rollouts.append(trajectories)
        self.metrics.append(super().on_rollout_end(*positional, trajectories=trajectories, **named))
        return self.metrics[-1]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("with_lora", [False, True])
def test_own_prompts_give_the_recorded_log_probabilities(make_trainer, temperature, with_lora):
    """Scored tokens, prompts and temperature are those of sampling; gradients are recomputed."""
    spy = Spy()
    trainer = make_trainer(
        callbacks=[spy],
        temperature=temperature,
        gradient_checkpointing=True,
        peft_config=make_lora() if with_lora else None,
    )
    trainer.train()
    first_turns = [
        math.fsum(logp for logp, turn in zip(t.logps, t.turn_index, strict=True) if turn == 0)
        for t in spy.rollouts[0]
    ]
    assert len(first_turns) == 16
    entropy = -math.fsum(first_turns) / len(first_turns)
    assert spy.metrics[0]["mi/conditional_entropy"] == pytest.approx(entropy, abs=1e-4)


def test_training_goes_on_as_if_nobody_had_looked(make_trainer):
    weights = []
    for callbacks in ([], [Spy()]):
        torch.manual_seed(3)
        trainer = make_trainer(callbacks=callbacks, max_steps=2, peft_config=make_lora())
        trainer.train()
        assert trainer.model.training
        weights.append((copy_tensors(trainer.model.named_parameters()), torch.get_rng_state()))
    (left, left_rng), (right, right_rng) = weights
    assert torch.equal(left_rng, right_rng)
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_rollout_without_any_thought_is_logged_as_such(make_trainer):
    spy = Spy()
    make_trainer(BANDIT, callbacks=[spy], enable_think=True).train()
    assert spy.metrics[0].keys() == {"mi/num_pairs", "time/mutual_information"}
    assert spy.metrics[0]["mi/num_pairs"] == 0
