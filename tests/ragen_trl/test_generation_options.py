"""Every field of `GenerationConfig` as `generation_kwargs`: followed and said, neutral, or refused."""

import pytest
import torch
from transformers import GenerationConfig

from ragen_trl import StarPOConfig
from ragen_trl.engines import ReplyLuck
from ragen_trl.generation import sample_replies
from ragen_trl.generation_options import (
    NEUTRAL_RULES,
    REFUSED_RULES,
    REFUSED_VLLM_RULES,
    SHAPING_RULES,
)
from tests.generation_rules import RULES

PROMPTS = ([7], [20, 30, 40, 50, 60, 70, 80], [90, 91, 92])
NUM_TOKENS = 12
END = 2

# A value of each rule that shapes replies, and what it makes of a reply's ids.
SHAPED = {
    "bad_words_ids": (
        [[token] for token in range(3, 300)],
        lambda ids: not set(ids) & set(range(3, 300)),
    ),
    "begin_suppress_tokens": (list(range(300)), lambda ids: ids[0] >= 300),
    "exponential_decay_length_penalty": ([2, 1e6], lambda ids: len(ids) <= 4),
    "min_new_tokens": (9, lambda ids: len(ids) >= 9),
    "no_repeat_ngram_size": (1, lambda ids: len(set(ids)) == len(ids)),
    "sequence_bias": ([[[30], 1e4]], lambda ids: set(ids) == {30}),
    "suppress_tokens": (list(range(300)), lambda ids: min(ids) >= 300),
}


def play(model, tokenizer, *, luck=False, **rules):
    torch.manual_seed(7)
    end_ids = list(range(END, len(tokenizer), 8)) if "min_new_tokens" in rules else [END]
    config = GenerationConfig(
        max_new_tokens=NUM_TOKENS,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=end_ids,
        **rules,
    )
    replies = sample_replies(
        model,
        PROMPTS * 8,
        config,
        eos_token_ids=end_ids,
        luck=ReplyLuck(range(24), 0) if luck else None,
    )
    return [reply.ids for reply in replies]


def test_every_field_is_judged_once():
    assert sorted([*SHAPING_RULES, *NEUTRAL_RULES, *REFUSED_RULES]) == sorted(RULES)
    assert set(SHAPED) == set(SHAPING_RULES)


@pytest.mark.parametrize("luck", [False, True], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", SHAPED)
def test_rules_that_are_taken_shape_replies_in_training_and_evaluation(
    tiny_model, tiny_tokenizer, name, luck
):
    value, holds = SHAPED[name]
    assert all(map(holds, play(tiny_model, tiny_tokenizer, luck=luck, **{name: value})))
    # Without the rule, some of 24 replies do otherwise.
    free = {name: None} if name == "min_new_tokens" else {}
    assert not all(map(holds, play(tiny_model, tiny_tokenizer, luck=luck, **free)))


@pytest.mark.parametrize("luck", [False, True])
@pytest.mark.parametrize("name", NEUTRAL_RULES)
def test_neutral_rules_change_no_reply(tiny_model, tiny_tokenizer, name, luck):
    plain = play(tiny_model, tiny_tokenizer, luck=luck)
    assert play(tiny_model, tiny_tokenizer, luck=luck, **{name: RULES[name]}) == plain


@pytest.mark.parametrize("name", REFUSED_RULES)
def test_rules_that_cannot_be_meant_are_refused_by_name(tmp_path, name):
    with pytest.raises(ValueError, match=rf"`generation_kwargs` must not hold '{name}', got .*\. "):
        StarPOConfig(str(tmp_path), generation_kwargs={"use_cache": True, name: RULES[name]})


@pytest.mark.parametrize("name", ["supress_tokens", "stop_token_ids", "transformers_version", 3])
def test_names_that_are_no_rules_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"must not hold {name!r}, .*it takes 'bad_words_ids', "):
        StarPOConfig(str(tmp_path), generation_kwargs={name: 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("suppress_tokens", "abc"),
        ("begin_suppress_tokens", ["a"]),
        ("bad_words_ids", [7, 8]),
        ("bad_words_ids", []),
        ("sequence_bias", {(7,): "much"}),
        ("sequence_bias", 3),
        ("no_repeat_ngram_size", 0),
        ("min_new_tokens", -1),
        ("exponential_decay_length_penalty", 1.5),
        ("exponential_decay_length_penalty", [1]),
    ],
)
def test_values_that_transformers_would_fail_at_are_refused(tmp_path, name, value):
    with pytest.raises(ValueError, match=rf"`generation_kwargs\['{name}'\]` must be as"):
        StarPOConfig(str(tmp_path), generation_kwargs={name: value})


def test_rules_come_as_text_from_the_command_line(tmp_path):
    config = StarPOConfig(str(tmp_path), generation_kwargs='{"suppress_tokens": [7]}')
    assert config.generation_kwargs == {"suppress_tokens": [7]}
    with pytest.raises(TypeError, match="`generation_kwargs` must be a dict"):
        StarPOConfig(str(tmp_path), generation_kwargs="suppress_tokens")


@pytest.mark.parametrize("name", REFUSED_VLLM_RULES)
def test_rules_of_vllm_that_the_trainer_sets_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"`generation_kwargs` must not hold '{name}', got 1"):
        StarPOConfig(str(tmp_path), use_vllm=True, generation_kwargs={name: 1})
    taken = {"stop_token_ids": [7], "presence_penalty": 0.5}
    assert StarPOConfig(str(tmp_path), use_vllm=True, generation_kwargs=taken)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_p": 0.9, "repetition_penalty": 1.1}, "`top_p`, `repetition_penalty`"),
        (
            {"top_k": 5, "generation_kwargs": {"suppress_tokens": [7], "use_cache": True}},
            "`top_k`, `generation_kwargs['suppress_tokens']`",
        ),
        ({"min_p": 0.1}, "`min_p`"),
        ({"generation_kwargs": {"use_cache": False, "suppress_tokens": None}}, None),
        ({"min_p": 0.0}, None),
    ],
)
def test_rules_that_shape_replies_are_said(make_trainer, caplog, options, said):
    make_trainer(**options)
    text = f"What is sampled is changed by {said}, and the log-probabilities that are trained are"
    assert ("What is sampled is changed" in caplog.text) is (said is not None)
    assert (text in caplog.text) is (said is not None)


def test_training_and_evaluation_follow_the_rules(make_trainer):
    trainer = make_trainer(generation_kwargs={"suppress_tokens": [7, 9, 20], "use_cache": False})
    trainer.train()
    trainer.evaluate()
    for temperature in (0.0, 1.0):
        for trajectory in trainer.rollout(seeds=[0], num_generations=8, temperature=temperature):
            ids = zip(trajectory.completion_ids, trajectory.turn_index, strict=True)
            assert not {token for token, turn in ids if turn >= 0} & {7, 9, 20}
