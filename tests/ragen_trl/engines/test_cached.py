import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from ragen_trl.engines import CachedEngine, find_obstacle
from tests.conversations import (
    ARCHITECTURES,
    ENDS,
    converse,
    make_cached,
    make_model,
    make_reference,
)


class CountingModel(torch.nn.Module):
    """Hands calls on and notes how many rows and tokens each brought."""

    def __init__(self, model):
        super().__init__()
        self.model, self.calls = model, []
        self.device, self.config = model.device, model.config

    def forward(self, **inputs):
        output = self.model(**inputs)
        self.calls.append((tuple(inputs["input_ids"].shape), output.logits.shape[1]))
        return output


def assert_same(left, right):
    assert [episode.ids for episode in left] == [episode.ids for episode in right]
    for one, other in zip(left, right, strict=True):
        assert one.logps == pytest.approx(other.logps, abs=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("num_groups", "group_size"), [(100, 1), (7, 16)])
def test_cached_engine_writes_what_the_reference_writes(architecture, tied, num_groups, group_size):
    model = make_model(architecture, tied=tied)
    shape = {"num_groups": num_groups, "group_size": group_size}
    expected, _ = converse(make_reference(model), **shape)
    actual, _ = converse(make_cached(model), **shape)
    assert_same(actual, expected)
    # The test means something: episodes differ in turns, replies end at both ends and at budgets.
    assert {len(episode.replies) for episode in actual} == {1, 2, 3, 4, 5}
    last = {reply.ids[-1] for episode in actual for reply in episode.replies}
    assert last & set(ENDS)
    assert last - set(ENDS)


@pytest.mark.parametrize("wave_size", [5, 32])
def test_waves_do_not_change_greedy_tokens(wave_size):
    model = make_model()
    shape = {"num_groups": 8, "group_size": 16}
    whole, (one,) = converse(make_cached(model), **shape)
    waves, several = converse(make_cached(model), **shape, wave_size=wave_size)
    assert_same(waves, whole)
    assert len(several) == -(-128 // wave_size)
    # Fewer rows side by side need less memory.
    assert max(session.cache_bytes for session in several) < one.cache_bytes


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_recorded_logps_equal_a_fresh_forward_pass(temperature):
    model = make_model("llama", tied=False)
    torch.manual_seed(1)
    episodes, _ = converse(make_cached(model, temperature=temperature), num_groups=3, group_size=8)
    for episode in episodes:
        ids = torch.tensor([episode.ids])
        with torch.no_grad():
            logps = (model(ids).logits[0, :-1] / temperature).log_softmax(-1)
        fresh = logps.gather(1, ids[0, 1:, None])[:, 0]
        sampled = torch.tensor(episode.is_sampled)[1:]
        recorded = torch.tensor(episode.logps)[1:]
        torch.testing.assert_close(recorded[sampled], fresh[sampled], rtol=0, atol=1e-4)


def test_repetition_penalty_is_that_of_the_reference():
    model = make_model()
    shape = {"num_groups": 20, "group_size": 2}
    expected, _ = converse(make_reference(model, repetition_penalty=1.3), **shape)
    actual, _ = converse(make_cached(model, repetition_penalty=1.3), **shape)
    plain, _ = converse(make_cached(model), **shape)
    assert_same(actual, expected)
    assert [e.ids for e in plain] != [e.ids for e in actual]


def test_group_costs_one_prompt_and_dropped_rows_cost_nothing():
    model = CountingModel(make_model())
    session = make_cached(model).start([[5, 6, 7, 8]] * 16 + [[9, 10]] * 16)
    session.reply(list(range(32)), [[]] * 32, [1] * 32)
    assert model.calls == [((2, 4), 1)]
    model.calls.clear()
    # The last token of the first turn was sampled, but not read yet.
    session.reply([0, 20, 31], [[11, 12], [13], []], [1, 1, 1])
    assert model.calls == [((3, 3), 1)]


def test_no_token_is_read_twice_and_none_left_out():
    model = CountingModel(make_model())
    episodes, _ = converse(make_cached(model), num_groups=1, group_size=1, seed=2)
    (episode,) = episodes
    assert len(episode.replies) > 1
    # All but the very last, after which nothing is drawn.
    assert sum(shape[1] for shape, _ in model.calls) == len(episode.ids) - 1
    # Logits are computed for one position per call.
    assert {count for _, count in model.calls} == {1}


def test_rows_do_not_depend_on_their_batch_mates():
    model = make_model()
    together, _ = converse(make_cached(model), num_groups=6, group_size=2)
    alone, _ = converse(make_cached(model), num_groups=6, group_size=2, wave_size=1)
    assert_same(alone, together)


def test_cache_bytes_are_those_of_keys_and_values():
    model = make_model()
    session = make_cached(model).start([[5] * 10] * 3)
    session.reply([0, 1, 2], [[]] * 3, [1] * 3)
    # One row was read and given to three: 2 layers * (keys, values) * 2 heads * 8 numbers of 4 bytes
    # for each of 10 tokens, and room for 64 more.
    per_slot = 2 * 2 * 2 * 8 * 4
    most = session.cache_bytes
    assert most == 3 * (10 + 64) * per_slot
    # What was held stays on record when rows leave.
    session.reply([1], [[5]], [1])
    assert session.cache_bytes == most


def test_gaps_that_ragged_replies_leave_take_little_memory_while_no_episode_ends():
    num_rows, num_turns = 8, 16
    session = make_cached(make_model(), ends=[]).start([[5 + row] * 20 for row in range(num_rows)])
    lengths = [20] * num_rows
    for turn in range(num_turns):
        # Another row talks for long in every turn.
        budgets = [30 if row == turn % num_rows else 1 for row in range(num_rows)]
        new = [[6]] * num_rows if turn else [[]] * num_rows
        replies = session.reply(list(range(num_rows)), new, budgets)
        for row, reply in enumerate(replies):
            lengths[row] += len(reply.ids) + len(new[row])
    per_slot = 2 * 2 * 2 * 8 * 4
    # A quarter for old gaps, the present turn, and half of it all for growth.
    most = 1.5 * (1.25 * max(lengths) + 31)
    assert session.cache_bytes <= num_rows * per_slot * most
    # Gaps that were kept would take more than twice as much.
    assert 20 + num_turns * 31 > 2 * most


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"_attn_implementation": "flash_attention_2"}, "flash_attention_2"),
        ({}, None),
    ],
)
def test_models_that_cannot_be_cached_are_named(change, reason):
    model = make_model()
    for name, value in change.items():
        setattr(model.config, name, value)
    found = find_obstacle(model)
    assert (found is None) if reason is None else (reason in found)


SMALL = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "eos_token_id": ENDS[0],
}


def make_other(model_type, attention="sdpa", **options):
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **SMALL, **options)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


@pytest.mark.parametrize(
    ("model_type", "options", "reason"),
    [
        # These have no `layer_types`: the window is that of every layer.
        ("mistral", {"sliding_window": 8}, "window of 8"),
        ("mixtral", {"sliding_window": 8, "num_local_experts": 2}, "window of 8"),
        ("phi3", {"sliding_window": 8}, "window of 8"),
        ("starcoder2", {"sliding_window": 8}, "window of 8"),
        # Positions by slots, windows of old, and states that are no keys and values.
        ("falcon", {"alibi": True}, "'falcon'"),
        ("gpt_neo", {"attention": "eager", "attention_types": [[["local"], 2]]}, "'gpt_neo'"),
        ("mpt", {"attention": "eager", "n_heads": 4}, "'mpt'"),
        ("mamba", {"attention": "eager"}, "'mamba'"),
        ("recurrent_gemma", {"attention": "eager"}, "'recurrent_gemma'"),
    ],
)
def test_models_whose_cache_would_be_wrong_are_named(model_type, options, reason):
    assert reason in find_obstacle(make_other(model_type, **options))


@pytest.mark.parametrize(
    ("model_type", "options"),
    [
        ("mistral", {"sliding_window": None}),
        ("phi3", {"sliding_window": None}),
        ("qwen3", {"head_dim": 8}),
        ("gpt_neox", {}),
        ("doge", {}),
    ],
)
def test_other_architectures_without_an_obstacle_write_what_the_reference_writes(
    model_type, options
):
    model = make_other(model_type, **options)
    assert find_obstacle(model) is None
    shape = {"num_groups": 8, "group_size": 2}
    expected, _ = converse(make_reference(model), **shape)
    actual, _ = converse(make_cached(model), **shape)
    assert_same(actual, expected)


def test_adapter_writes_with_the_cache_what_the_reference_writes():
    model = get_peft_model(make_model(), LoraConfig(r=4, target_modules="all-linear"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    assert find_obstacle(model) is None
    shape = {"num_groups": 8, "group_size": 2}
    expected, _ = converse(make_reference(model), **shape)
    actual, _ = converse(make_cached(model), **shape)
    assert_same(actual, expected)
    plain, _ = converse(make_cached(make_model()), **shape)
    assert [episode.ids for episode in plain] != [episode.ids for episode in actual]
    assert model.config._attn_implementation == "sdpa"


def test_prompt_adapters_are_named():
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    assert "before the prompt" in find_obstacle(get_peft_model(make_model(), config))


def test_engine_has_a_name_for_messages():
    assert CachedEngine.name == "transformers"
    assert make_reference(make_model()).name == "reference"
