"""Loading a policy from wherever it lies: the embedded one, a hub id, a folder, an adapter."""

from pathlib import Path
from typing import Any

from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from ragen_trl.tiny import load_tiny_policy

EMBEDDED = "tiny"
# What `save_pretrained` writes for a tokenizer that is defined by its `tokenizer.json` alone.
_GENERIC_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")


def load_policy(model: str, *, dtype: str = "float32") -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer.

    Args:
        model: "tiny" for the embedded policy, a model id, a folder with a model, or a folder with
            a LoRA adapter, which is loaded on its base model and stays trainable.
        dtype: Of the weights: "float32", "bfloat16", "float16" or "auto".

    Returns:
        The model and the tokenizer.
    """
    if model == EMBEDDED:
        return load_tiny_policy(dtype=dtype)
    if (Path(model) / "adapter_config.json").exists():
        policy = AutoPeftModelForCausalLM.from_pretrained(model, is_trainable=True, dtype=dtype)
    else:
        policy = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    return policy, load_tokenizer(model)


def load_tokenizer(model: str) -> Any:
    """Load the tokenizer of a model id or folder."""
    # For a Qwen2 model, `AutoTokenizer` builds a Qwen2 tokenizer whatever class the folder names;
    # the embedded policy's would come back with its words taken apart.
    is_generic = get_tokenizer_config(model).get("tokenizer_class") in _GENERIC_CLASSES
    return (PreTrainedTokenizerFast if is_generic else AutoTokenizer).from_pretrained(model)
