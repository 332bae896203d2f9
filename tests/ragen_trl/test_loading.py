import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Qwen2ForCausalLM

from ragen_trl.loading import load_policy


@pytest.fixture
def saved(tiny, tmp_path):
    """A folder with the small policy, as `trainer.save_model` leaves it."""
    model, tokenizer = tiny
    folder = tmp_path / "policy"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def weights(model):
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def test_load_policy_from_a_folder_gives_back_model_and_tokenizer(
    saved, tiny_model, tiny_tokenizer
):
    model, tokenizer = load_policy(str(saved))
    assert isinstance(model, Qwen2ForCausalLM)
    loaded, original = weights(model), weights(tiny_model)
    assert loaded.keys() == original.keys()
    assert all(torch.equal(loaded[name], original[name]) for name in original)
    assert all(parameter.requires_grad for parameter in model.parameters())
    text = "<think>a √</think><answer>Up || Left</answer>"
    assert tokenizer(text)["input_ids"] == tiny_tokenizer(text)["input_ids"]
    assert tokenizer.chat_template == tiny_tokenizer.chat_template


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", torch.float32), ("bfloat16", torch.bfloat16), ("auto", torch.float32)],
)
def test_load_policy_in_the_asked_precision(saved, dtype, expected):
    model, _ = load_policy(str(saved), dtype=dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {expected}


def test_load_policy_adapter_comes_on_its_base_and_stays_trainable(saved, tmp_path, tiny_tokenizer):
    base, _ = load_policy(str(saved))
    torch.manual_seed(0)
    # Weights of the adapter that do something, unlike those it starts from.
    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    adapted = get_peft_model(base, config)
    folder = tmp_path / "adapter"
    adapted.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        expected = adapted.eval()(ids).logits

    model, tokenizer = load_policy(str(folder))

    assert isinstance(model, PeftModel)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(ids).logits, expected)
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trainable == {name for name, _ in model.named_parameters() if "lora_" in name}
    assert trainable
    assert len(tokenizer) == len(tiny_tokenizer)


def save_adapters(saved, folder, *names):
    """Save adapters that do something, as `trainer.save_model` does; return what the first says."""
    base, tokenizer = load_policy(str(saved))
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    adapted = get_peft_model(base, config, adapter_name=names[0])
    for name in names[1:]:
        adapted.add_adapter(name, config)
    adapted.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with torch.no_grad():
        return adapted.eval()(torch.tensor([[1, 2, 3, 4]])).logits


def test_load_policy_finds_the_adapter_that_has_a_name_of_its_own(saved, tmp_path, tiny_tokenizer):
    # Beside it what training adds; an older checkpoint has another one.
    folder = tmp_path / "run"
    save_adapters(saved, folder / "checkpoint-1", "default")
    expected = save_adapters(saved, folder, "mine", "critic", "ref")
    assert not (folder / "adapter_config.json").exists()
    model, tokenizer = load_policy(str(folder))
    with torch.no_grad():
        logits = model.eval()(torch.tensor([[1, 2, 3, 4]])).logits
    torch.testing.assert_close(logits, expected)
    assert any(p.requires_grad for p in model.parameters())
    assert len(tokenizer) == len(tiny_tokenizer)


def test_load_policy_of_several_adapters_asks_which(saved, tmp_path):
    folder = tmp_path / "run"
    expected = save_adapters(saved, folder, "mine", "other")
    with pytest.raises(ValueError, match=r"one adapter, got .*run' with \['mine', 'other'\]. Copy"):
        load_policy(str(folder))
    # The remedy that it names.
    for file in folder.glob("*token*"):
        shutil.copy(file, folder / "mine")
    model, _ = load_policy(str(folder / "mine"))
    with torch.no_grad():
        logits = model.eval()(torch.tensor([[1, 2, 3, 4]])).logits
    torch.testing.assert_close(logits, expected)


def test_load_policy_embedded_one_comes_with_the_package():
    model, tokenizer = load_policy("tiny")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.config.vocab_size == len(tokenizer)
    # Half the size of `build_tiny_policy`'s default, so that the demo takes minutes.
    assert 0.4e6 < sum(parameter.numel() for parameter in model.parameters()) < 0.6e6


def test_load_policy_embedded_one_takes_the_asked_precision():
    model, _ = load_policy("tiny", dtype="bfloat16")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_load_policy_unknown_folder_is_an_error_that_names_it(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        load_policy(str(tmp_path / "nowhere"))
