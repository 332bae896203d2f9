import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import Qwen2Config, Qwen2Model

from ragen_trl.critic import ADAPTER_NAME, build_critic
from tests.training import assert_same_tensors, copy_model, copy_tensors


def make_policy(start):
    trained, _ = start
    return copy_model(trained)


def make_lora_policy(start):
    return get_peft_model(
        make_policy(start), LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.5)
    )


def build(policy, model_name_or_path=None):
    return build_critic(policy, model_name_or_path=model_name_or_path, dtype=torch.float32)


def give_weights(critic, seed=0):
    """Move every trained parameter away from its start, where the value is 0 for all tokens."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in critic.trained_parameters().values():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


def values(critic, input_ids, num_tokens):
    """Values of the last tokens of every row, each read at the token before it."""
    with critic.active(), torch.no_grad():
        return critic(input_ids=input_ids)[:, -num_tokens - 1 : -1]


@pytest.fixture(params=[make_policy, make_lora_policy], ids=["whole", "lora"])
def policy(request, start):
    return request.param(start)


def test_untrained_critic_values_everything_at_zero(policy):
    ids = torch.arange(4, 16).view(2, 6)
    assert values(build(policy), ids, 5).tolist() == [[0.0] * 5] * 2


def test_value_of_a_token_is_read_before_it_is_sampled(policy):
    critic = build(policy)
    give_weights(critic)
    ids = torch.arange(4, 14).view(1, 10)
    before = values(critic, ids, 9)[0]
    for index in range(8):
        changed = ids.clone()
        # Entry 0 of the last nine stands for position 1.
        changed[0, index + 1] = 30
        after = values(critic, changed, 9)[0]
        torch.testing.assert_close(after[: index + 1], before[: index + 1])
        assert (after[index + 1 :] - before[index + 1 :]).abs().min() > 1e-7


def test_value_is_the_head_of_the_state_that_the_tokens_logits_come_from(start):
    policy = make_policy(start)
    critic = build(policy)
    give_weights(critic)
    ids = torch.arange(4, 12).view(1, 8)
    states = critic.own_backbone(ids).last_hidden_state[0]
    expected = states[4:7] @ critic.value_head.weight[0] + critic.value_head.bias
    torch.testing.assert_close(values(critic, ids, 3)[0], expected)


def test_values_do_not_depend_on_padding_or_batch_mates(policy):
    critic = build(policy)
    give_weights(critic)
    short, long = torch.arange(4, 9), torch.arange(10, 19)
    ids = torch.stack([torch.nn.functional.pad(short, (0, 4)), long])
    mask = torch.stack([torch.arange(9) < 5, torch.arange(9) < 9]).long()
    with critic.active(), torch.no_grad():
        together = critic(input_ids=ids, attention_mask=mask)[:, :-1]
    torch.testing.assert_close(together[0, :4], values(critic, short[None], 4)[0])
    torch.testing.assert_close(together[1], values(critic, long[None], 8)[0])


def test_critic_of_a_whole_policy_is_a_copy(start):
    policy = make_policy(start)
    before = copy_tensors(policy.named_parameters())
    critic = build(policy)
    assert_same_tensors(
        dict(critic.own_backbone.named_parameters()), dict(policy.model.named_parameters()), atol=0
    )
    give_weights(critic)
    assert_same_tensors(dict(policy.named_parameters()), before, atol=0)


def test_critic_of_a_lora_policy_holds_an_adapter_and_a_head_alone(start):
    policy = make_lora_policy(start)
    own = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    critic = build(policy)
    trained = critic.trained_parameters()
    assert {name for name in trained if "lora_" not in name} == {
        "value_head.weight",
        "value_head.bias",
    }
    assert sum(p.numel() for p in trained.values()) == own + policy.config.hidden_size + 1
    assert list(critic.state_dict()) == ["value_head.weight", "value_head.bias"]
    config = policy.peft_config[ADAPTER_NAME]
    assert (config.r, config.lora_dropout) == (4, 0.0)
    assert policy.peft_config["default"].lora_dropout == 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"target_modules": ["q_proj"], "trainable_token_indices": [5, 6]},
    ],
)
def test_critic_trains_what_peft_keeps_without_a_module(start, options):
    policy = get_peft_model(make_policy(start), LoraConfig(r=4, **options))
    own = {name for name, p in policy.named_parameters() if p.requires_grad}
    trained = build(policy).trained_parameters()
    names = {name.replace("default", ADAPTER_NAME) for name in own}
    assert names | {"value_head.weight", "value_head.bias"} == trained.keys()


def test_policys_adapter_by_the_critics_name_is_refused(start):
    policy = get_peft_model(
        make_policy(start), LoraConfig(target_modules="all-linear"), adapter_name=ADAPTER_NAME
    )
    with pytest.raises(ValueError, match=r"no adapter named 'critic'.*got \['critic'\]"):
        build(policy)


def test_critics_adapter_is_trainable_only_while_it_is_active(start):
    policy = make_lora_policy(start)
    critic = build(policy)
    adapter = [p for name, p in critic.trained_parameters().items() if "lora_" in name]
    flags = {name: p.requires_grad for name, p in policy.named_parameters()}
    assert not any(p.requires_grad for p in adapter)
    with critic.active():
        assert all(p.requires_grad for p in adapter)
        assert policy.active_adapter == ADAPTER_NAME
        assert not any(p.requires_grad for n, p in policy.named_parameters() if ".default." in n)
    # Also after an error, the policy is as it was.
    with pytest.raises(IndexError), critic.active():
        critic(input_ids=torch.full((1, 4), 10**6))
    assert policy.active_adapter == "default"
    assert {name: p.requires_grad for name, p in policy.named_parameters()} == flags


def test_critics_adapter_does_not_change_what_the_policy_says(start):
    policy = make_lora_policy(start).eval()
    ids = torch.arange(4, 12).view(1, 8)
    before = policy(ids).logits
    critic = build(policy)
    give_weights(critic)
    values(critic, ids, 3)
    torch.testing.assert_close(policy(ids).logits, before, rtol=0, atol=0)


def test_gradient_reaches_every_trained_parameter_and_no_other(policy):
    critic = build(policy)
    give_weights(critic)
    ids = torch.arange(4, 16).view(2, 6)
    with critic.active():
        critic(input_ids=ids).square().sum().backward()
    trained = critic.trained_parameters()
    assert [name for name, p in trained.items() if p.grad is None or not p.grad.any()] == []
    others = [p for name, p in policy.named_parameters() if name not in trained]
    assert all(p.grad is None for p in others)


def test_any_model_with_the_policys_vocabulary_can_be_the_critic(start, tmp_path):
    policy = make_lora_policy(start)
    size = policy.get_input_embeddings().num_embeddings
    shape = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    for name, vocab_size in (("large", size), ("small", size - 1)):
        Qwen2Model(Qwen2Config(vocab_size=vocab_size, **shape)).save_pretrained(tmp_path / name)
    critic = build(policy, str(tmp_path / "large"))
    assert critic.value_head.in_features == 16
    assert ADAPTER_NAME not in policy.peft_config
    assert all(p.requires_grad for p in critic.trained_parameters().values())
    with pytest.raises(ValueError, match=rf"`critic_model_name_or_path` must read .* {size} token"):
        build(policy, str(tmp_path / "small"))


def test_adapter_that_is_no_lora_needs_a_critic_of_its_own(start):
    policy = get_peft_model(
        make_policy(start), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    )
    with pytest.raises(ValueError, match=r"`peft_config` must be a `LoraConfig`.*got PromptTuning"):
        build(policy)
