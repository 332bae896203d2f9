"""What `generation_kwargs` may hold: every field of transformers' `GenerationConfig` is judged here.

Whatever they hold, all play is the reference engine's then. What shapes replies and has an option of
its own, which both engines follow, is not taken twice.
"""

from collections.abc import Callable
from typing import Any

from transformers import (
    ExponentialDecayLengthPenalty,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

# They change what is sampled, in training and in its evaluations; what makes something of the value.
SHAPING_RULES: dict[str, Callable[[Any], object]] = {
    "bad_words_ids": NoBadWordsLogitsProcessor,
    "begin_suppress_tokens": lambda ids: SuppressTokensAtBeginLogitsProcessor(ids, 0),
    "exponential_decay_length_penalty": lambda rule: ExponentialDecayLengthPenalty(rule, [0], 0),
    "min_new_tokens": lambda least: MinNewTokensLengthLogitsProcessor(0, least, [0]),
    "no_repeat_ngram_size": NoRepeatNGramLogitsProcessor,
    "sequence_bias": SequenceBiasLogitsProcessor,
    "suppress_tokens": SuppressTokensLogitsProcessor,
}
# They change how `generate` computes, and not what comes of it.
NEUTRAL_RULES = ("use_cache", "prefill_chunk_size", "renormalize_logits")

_REFUSED: dict[str, tuple[str, ...]] = {
    "The trainer sets it. Use `max_new_tokens_per_turn`, `temperature`, `eval_temperature` and "
    "`num_generations`.": (
        "do_sample",
        "max_length",
        "max_new_tokens",
        "num_return_sequences",
        "temperature",
    ),
    "Set the option of this name instead, which every engine follows.": (
        "cache_implementation",
        "min_p",
        "repetition_penalty",
        "top_k",
        "top_p",
    ),
    "End tokens are those of `model.generation_config` and of the chat template; the others are the "
    "tokenizer's.": ("bos_token_id", "eos_token_id", "pad_token_id"),
    "Evaluations, whose luck is an episode's own, would not follow it. Use `top_p` or `min_p`.": (
        "epsilon_cutoff",
        "eta_cutoff",
        "top_h",
        "typical_p",
    ),
    "It would count the prompt as well. Use `min_new_tokens`.": ("min_length",),
    "Lengths would depend on the speed of the machine. Use `max_new_tokens_per_turn`.": (
        "max_time",
    ),
    "Replies end at end tokens, or with `stop_at_answer`.": ("stop_strings",),
    "Tokens that the policy did not choose would be trained as its choice.": (
        "forced_bos_token_id",
        "forced_eos_token_id",
        "guidance_scale",
        "watermarking_config",
    ),
    "Prompts are played as they are.": ("token_healing",),
    "Training needs replies that are sampled, one token after the other.": (
        "constraints",
        "diversity_penalty",
        "dola_layers",
        "early_stopping",
        "force_words_ids",
        "length_penalty",
        "low_memory",
        "num_beam_groups",
        "num_beams",
        "penalty_alpha",
    ),
    "Drafting is for single prompts.": (
        "assistant_confidence_threshold",
        "assistant_early_exit",
        "assistant_ensemble_weight",
        "assistant_lookbehind",
        "is_assistant",
        "max_matching_ngram_size",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "prompt_lookup_num_tokens",
        "speculation_type",
        "target_lookbehind",
        "use_mtp",
    ),
    "There is no encoder.": (
        "decoder_start_token_id",
        "encoder_no_repeat_ngram_size",
        "encoder_repetition_penalty",
    ),
    "The trainer takes tokens and nothing else from `generate`.": (
        "output_attentions",
        "output_hidden_states",
        "output_logits",
        "output_scores",
        "return_dict_in_generate",
    ),
    "Numbers that are not finite must end the training.": ("remove_invalid_values",),
    "Generation is not compiled, and its caches are as long as needed.": (
        "cache_config",
        "compile_config",
        "continuous_batching_config",
        "disable_compile",
        "max_cache_len",
    ),
}
REFUSED_RULES = {name: reason for reason, names in _REFUSED.items() for name in names}

# With vLLM, the names are those of its `SamplingParams`, which refuses what it does not know.
_OPTIONS = (
    "Set `temperature`, `top_p`, `top_k`, `min_p` or `repetition_penalty` of the configuration."
)
REFUSED_VLLM_RULES = {
    "max_tokens": "Use `max_new_tokens_per_turn`.",
    "n": "Use `num_generations`.",
    "logprobs": "The trainer sets it.",
    "seed": "The episodes of a group would be alike.",
    **dict.fromkeys(("temperature", "top_p", "top_k", "min_p", "repetition_penalty"), _OPTIONS),
}
# They end a reply; all others may change what is sampled.
_VLLM_STOPS = {"stop", "stop_token_ids", "include_stop_str_in_output"}


def check_generation_kwargs(config: Any) -> None:
    """Refuse `generation_kwargs` that rollouts or evaluations could not follow.

    Raises:
        TypeError: If it is no dict.
        ValueError: Naming the rule, its value, and what to use instead.
    """
    given = config.generation_kwargs
    if not isinstance(given, dict | None):
        raise TypeError(
            f"`generation_kwargs` must be a dict by the names of `GenerationConfig`, got {given!r}."
        )
    refused = REFUSED_VLLM_RULES if config.use_vllm else REFUSED_RULES
    for name, value in (given or {}).items():
        reason = refused.get(name)
        if reason is None and not config.use_vllm and not _is_taken(name):
            known = ", ".join(map(repr, sorted([*SHAPING_RULES, *NEUTRAL_RULES])))
            reason = f"Without vLLM, it takes {known}."
        if reason is not None:
            raise ValueError(f"`generation_kwargs` must not hold {name!r}, got {value!r}. {reason}")
        if not config.use_vllm and name in SHAPING_RULES and value is not None:
            _check_value(name, value)


def shaping_rules(config: Any) -> list[str]:
    """Return the options and rules in force that change what is sampled, by name."""
    options = {
        "top_p": config.top_p < 1.0,
        "top_k": config.top_k > 0,
        "min_p": bool(config.min_p),
        "repetition_penalty": config.repetition_penalty != 1.0,
    }
    names = [name for name, is_on in options.items() if is_on]
    neutral = _VLLM_STOPS if config.use_vllm else NEUTRAL_RULES
    given = config.generation_kwargs or {}
    return names + [
        f"generation_kwargs[{name!r}]"
        for name, value in given.items()
        if name not in neutral and value is not None
    ]


def _is_taken(name: str) -> bool:
    return name in SHAPING_RULES or name in NEUTRAL_RULES


def _check_value(name: str, value: Any) -> None:
    try:
        SHAPING_RULES[name](value)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise ValueError(
            f"`generation_kwargs[{name!r}]` must be as transformers takes it, got {value!r}. "
            f"It says: {error}"
        ) from error
