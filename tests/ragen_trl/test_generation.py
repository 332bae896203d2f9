"""Sampled replies, against forward passes of single unpadded rows without a cache."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GenerationConfig

from ragen_trl.generation import sample_replies
from tests.generation_rules import RULES

# Ragged on purpose; the shortest is padded most.
PROMPTS = ([7], [20, 30, 40, 50, 60, 70, 80], [90, 91, 92], [200, 7, 7, 7, 100, 250])
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def end_ids(tiny_tokenizer):
    """Enough ids that end a reply for an untrained policy to draw one every few tokens."""
    return list(range(2, len(tiny_tokenizer), 8))


def make_config(tokenizer, end_ids, **options):
    defaults = {
        "do_sample": True,
        "temperature": 1.0,
        "max_new_tokens": 12,
        "top_k": 0,
        "pad_token_id": tokenizer.pad_token_id,
    }
    return GenerationConfig(eos_token_id=end_ids, **(defaults | options))


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def reply_logps(model, prompt_ids, reply_ids, temperature):
    """Return log p(token | everything before it) of a reply's tokens, by one forward pass."""
    logits = logits_of(model, [*prompt_ids, *reply_ids])[len(prompt_ids) - 1 : -1]
    return torch.log_softmax(logits / temperature, dim=-1)[range(len(reply_ids)), reply_ids]


def assert_logps(model, prompts, replies, temperature):
    for prompt_ids, reply in zip(prompts, replies, strict=True):
        expected = reply_logps(model, prompt_ids, reply.ids, temperature)
        assert reply.logps == pytest.approx(expected.tolist(), abs=TOLERANCE)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_sample_replies_records_logps_of_a_forward_pass(
    tiny_model, tiny_tokenizer, end_ids, temperature
):
    torch.manual_seed(0)
    prompts = PROMPTS * 4
    config = make_config(tiny_tokenizer, end_ids, temperature=temperature)
    replies = sample_replies(tiny_model, prompts, config, eos_token_ids=end_ids)
    # Some rows end early and wait for the others: they must not be disturbed by what follows.
    assert len({len(reply.ids) for reply in replies}) > 3
    assert_logps(tiny_model, prompts, replies, temperature)
    other = 1.0 if temperature != 1.0 else 1.7
    with pytest.raises(AssertionError):
        assert_logps(tiny_model, prompts, replies, other)


def test_sample_replies_draws_from_the_distribution_it_records(tiny_model, tiny_tokenizer):
    torch.manual_seed(0)
    num_rows, temperature = 3000, 1.7
    config = make_config(tiny_tokenizer, [2], temperature=temperature, max_new_tokens=1)
    replies = sample_replies(tiny_model, [PROMPTS[1]] * num_rows, config, eos_token_ids=[2])
    logits = logits_of(tiny_model, PROMPTS[1])[-1]
    drawn = torch.bincount(torch.tensor([r.ids[0] for r in replies]), minlength=len(logits))
    expected = torch.softmax(logits / temperature, dim=-1)
    spread = (expected * (1 - expected) / num_rows).sqrt()
    assert ((drawn / num_rows - expected).abs() <= 5 * spread + 1 / num_rows).all()
    # The untempered distribution is another one, by the same measure.
    wrong = torch.softmax(logits, dim=-1)
    assert ((drawn / num_rows - wrong).abs() > 5 * spread + 1 / num_rows).any()


def test_sample_replies_greedy_takes_the_most_probable_token(tiny_model, tiny_tokenizer, end_ids):
    # The temperature must play no part without sampling.
    config = make_config(tiny_tokenizer, end_ids, do_sample=False, temperature=3.0)
    replies = sample_replies(tiny_model, PROMPTS, config, eos_token_ids=end_ids)
    for prompt_ids, reply in zip(PROMPTS, replies, strict=True):
        ids = list(prompt_ids)
        while len(ids) < len(prompt_ids) + 12 and not set(ids[len(prompt_ids) :]) & set(end_ids):
            ids.append(int(logits_of(tiny_model, ids)[-1].argmax()))
        assert reply.ids == ids[len(prompt_ids) :]
    assert_logps(tiny_model, PROMPTS, replies, 1.0)


def test_sample_replies_row_does_not_depend_on_its_batch_mates(tiny_model, tiny_tokenizer, end_ids):
    config = make_config(tiny_tokenizer, end_ids, do_sample=False)
    together = sample_replies(tiny_model, PROMPTS, config, eos_token_ids=end_ids)
    for prompt_ids, reply in zip(PROMPTS, together, strict=True):
        (alone,) = sample_replies(tiny_model, [prompt_ids], config, eos_token_ids=end_ids)
        assert reply.ids == alone.ids
        assert reply.logps == pytest.approx(alone.logps, abs=TOLERANCE)


def test_sample_replies_ends_with_the_first_end_token_or_is_cut(
    tiny_model, tiny_tokenizer, end_ids
):
    torch.manual_seed(1)
    config = make_config(tiny_tokenizer, end_ids)
    replies = sample_replies(tiny_model, PROMPTS * 8, config, eos_token_ids=end_ids)
    ended = [reply for reply in replies if reply.ids[-1] in end_ids]
    cut = [reply for reply in replies if reply.ids[-1] not in end_ids]
    assert ended
    assert cut
    assert {len(reply.ids) for reply in cut} == {12}
    assert len({reply.ids[-1] for reply in ended}) > 1  # several of the end tokens occur
    assert all(not set(reply.ids[:-1]) & set(end_ids) for reply in replies)
    assert all(len(reply.ids) == len(reply.logps) for reply in replies)


def test_sample_replies_stops_at_an_end_token_unknown_to_the_generation(tiny_model, tiny_tokenizer):
    torch.manual_seed(2)
    config = make_config(tiny_tokenizer, [2])
    plain = sample_replies(tiny_model, PROMPTS, config, eos_token_ids=[2])
    inner = [reply.ids[3] for reply in plain]
    torch.manual_seed(2)
    replies = sample_replies(tiny_model, PROMPTS, config, eos_token_ids=[2, *inner])
    for reply, whole in zip(replies, plain, strict=True):
        first = next(i for i, token_id in enumerate(whole.ids) if token_id in inner)
        assert (reply.ids, reply.logps) == (whole.ids[: first + 1], whole.logps[: first + 1])


def test_sample_replies_padding_token_that_ends_replies_is_kept_once(
    tiny_model, tiny_tokenizer, end_ids
):
    torch.manual_seed(3)
    pad = end_ids[3]
    config = make_config(tiny_tokenizer, end_ids, pad_token_id=pad)
    prompts = [[pad, 7, pad, 8], *PROMPTS] * 40  # padding that is part of the text counts as text
    replies = sample_replies(tiny_model, prompts, config, eos_token_ids=end_ids)
    assert any(reply.ids[-1] == pad for reply in replies)
    assert all(reply.ids.count(pad) == (reply.ids[-1] == pad) for reply in replies)
    assert_logps(tiny_model, prompts, replies, 1.0)


def test_sample_replies_of_one_token_has_one_logp(tiny_model, tiny_tokenizer, end_ids):
    torch.manual_seed(4)
    config = make_config(tiny_tokenizer, end_ids, max_new_tokens=1)
    replies = sample_replies(tiny_model, PROMPTS, config, eos_token_ids=end_ids)
    assert [len(reply.ids) for reply in replies] == [1] * len(PROMPTS)
    assert_logps(tiny_model, PROMPTS, replies, 1.0)


@pytest.mark.parametrize("truncation", [{"top_k": 3}, {"top_p": 0.3}, {"min_p": 0.5}])
def test_sample_replies_truncation_leaves_recorded_logps_untruncated(
    tiny_model, tiny_tokenizer, end_ids, truncation
):
    torch.manual_seed(5)
    config = make_config(tiny_tokenizer, end_ids, temperature=1.7, **truncation)
    replies = sample_replies(tiny_model, PROMPTS, config, eos_token_ids=end_ids)
    assert_logps(tiny_model, PROMPTS, replies, 1.7)
    if "top_k" in truncation:  # what is drawn does obey the truncation
        for prompt_ids, reply in zip(PROMPTS, replies, strict=True):
            logits = logits_of(tiny_model, [*prompt_ids, *reply.ids])[len(prompt_ids) - 1 : -1]
            best = logits.topk(3).indices.tolist()
            assert all(i in few for i, few in zip(reply.ids, best, strict=True))


def test_sample_replies_repetition_penalty_is_part_of_the_recorded_logps(
    tiny_model, tiny_tokenizer, end_ids
):
    torch.manual_seed(6)
    penalty = 1.5
    config = make_config(tiny_tokenizer, end_ids, repetition_penalty=penalty)
    replies = sample_replies(tiny_model, PROMPTS, config, eos_token_ids=end_ids)
    for prompt_ids, reply in zip(PROMPTS, replies, strict=True):
        ids = [*prompt_ids, *reply.ids]
        for i, logp in enumerate(reply.logps, start=len(prompt_ids)):
            logits = logits_of(tiny_model, ids[:i])[-1]
            seen = torch.tensor(sorted(set(ids[:i])))
            seen_logits = logits[seen]
            logits[seen] = torch.where(
                seen_logits < 0, seen_logits * penalty, seen_logits / penalty
            )
            assert logp == pytest.approx(torch.log_softmax(logits, -1)[ids[i]].item(), abs=1e-4)


def test_every_field_of_a_generation_config_has_a_value_to_try():
    fields = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    assert set(RULES) == fields - {"transformers_version"}


@pytest.mark.parametrize(("name", "value"), RULES.items())
def test_sample_replies_follows_nothing_that_came_with_the_model(
    tiny_model, tiny_tokenizer, end_ids, monkeypatch, name, value
):
    config = make_config(tiny_tokenizer, end_ids)

    def play():
        torch.manual_seed(7)
        return sample_replies(tiny_model, PROMPTS, config, eos_token_ids=end_ids)

    plain = play()
    own = GenerationConfig()
    setattr(own, name, value)
    monkeypatch.setattr(tiny_model, "generation_config", own)
    assert play() == plain
    assert tiny_model.generation_config is own
    assert getattr(own, name) == value


def test_sample_replies_follows_nothing_that_was_set_on_an_adapter(
    tiny_model, tiny_tokenizer, end_ids
):
    adapter = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(type(tiny_model)(tiny_model.config), adapter)
    base = model.get_base_model()
    config = make_config(tiny_tokenizer, end_ids)

    def play():
        torch.manual_seed(7)
        return sample_replies(model, PROMPTS, config, eos_token_ids=end_ids)

    plain = play()
    before = base.generation_config
    # PEFT keeps this beside the base model's and puts it there before it generates.
    model.generation_config = own = GenerationConfig(suppress_tokens=list(range(100)))
    assert play() == plain
    assert model.generation_config is own
    assert base.generation_config is before
