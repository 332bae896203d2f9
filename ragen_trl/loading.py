"""Loading a policy from wherever it lies: the embedded one, a hub id, a folder, an adapter."""

from pathlib import Path
from typing import Any

from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_trl.tiny import load_tiny_policy

EMBEDDED = "tiny"


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
        return load_tiny_policy()
    if (Path(model) / "adapter_config.json").exists():
        policy = AutoPeftModelForCausalLM.from_pretrained(model, is_trainable=True, dtype=dtype)
    else:
        policy = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    return policy, AutoTokenizer.from_pretrained(model)
