"""Loading a policy from wherever it lies: the embedded one, a hub id, a folder, an adapter."""

from pathlib import Path
from typing import Any

from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ragen_trl.critic import ADAPTER_NAME
from ragen_trl.tiny import load_tiny_policy

EMBEDDED = "tiny"
_ADAPTER_FILE = "adapter_config.json"
# Adapters that a training saves beside the policy's: the critic's, and TRL's reference.
_OTHER_ADAPTERS = (ADAPTER_NAME, "ref")
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

    Raises:
        OSError: If there is no such model.
        ValueError: If a folder holds no model, or several adapters.
    """
    if model == EMBEDDED:
        return load_tiny_policy(dtype=dtype)
    if (adapter := _find_adapter(Path(model))) is not None:
        policy = AutoPeftModelForCausalLM.from_pretrained(
            str(adapter), is_trainable=True, dtype=dtype
        )
    else:
        policy = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    return policy, load_tokenizer(model)


def _find_adapter(folder: Path) -> Path | None:
    """Return where the adapter of a folder lies, if it holds one.

    PEFT puts adapters into folders of their names, but for the one that is named `default`.
    """
    if (folder / _ADAPTER_FILE).exists():
        return folder
    if (folder / "config.json").exists():
        return None
    names = {path.parent.name for path in folder.glob(f"*/{_ADAPTER_FILE}")}
    names = {name for name in names if not name.startswith(PREFIX_CHECKPOINT_DIR)}
    found = sorted(names.difference(_OTHER_ADAPTERS))
    if len(found) > 1:
        raise ValueError(
            f"`model` must hold one adapter, got {str(folder)!r} with {found}. Copy the tokenizer's "
            f"files into the folder of the one you mean, such as {str(folder / found[0])!r}, and "
            "pass that."
        )
    return folder / found[0] if found else None


def load_tokenizer(model: str) -> Any:
    """Load the tokenizer of a model id or folder."""
    # For a Qwen2 model, `AutoTokenizer` builds a Qwen2 tokenizer whatever class the folder names;
    # the embedded policy's would come back with its words taken apart.
    is_generic = get_tokenizer_config(model).get("tokenizer_class") in _GENERIC_CLASSES
    return (PreTrainedTokenizerFast if is_generic else AutoTokenizer).from_pretrained(model)
