"""What can only be checked once TRL has loaded the model."""

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from tempfile import TemporaryDirectory
from typing import Any, SupportsIndex

import torch
from accelerate import PartialState
from accelerate.logging import get_logger
from peft import PeftModel
from torch import Tensor
from trl import GRPOTrainer

from ragen_trl.chat import ChatCodec
from ragen_trl.engines import find_obstacle, has_prompt_adapter
from ragen_trl.trajectory import Trajectory

logger = get_logger(__name__)

# Above this share of groups without variance a rollout teaches next to nothing.
DEAD_GROUPS_WARNING = 0.7


def check_trainer(trainer: GRPOTrainer) -> None:
    """Refuse models and set-ups that would train nothing, or not what they say.

    Raises:
        ValueError: Naming the argument to change.
    """
    if not any(parameter.requires_grad for parameter in trainer.model.parameters()):
        raise ValueError(
            "`model` must have trainable parameters, got none. Load an adapter with "
            "`is_trainable=True`, or pass `peft_config`."
        )
    if has_prompt_adapter(trainer.model):
        raise ValueError(
            "`peft_config` must adapt weights, such as `LoraConfig`, got prompt learning, whose tokens "
            "stand before those that were played."
        )
    if trainer._is_vlm:
        raise ValueError("`processing_class` must be a tokenizer, got a multimodal processor.")
    check_context(trainer.model, trainer.args.max_trajectory_tokens)
    check_generation_settings(trainer.model)
    shards = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    if trainer.accelerator.num_processes > 1 and shards:
        raise ValueError(
            "Several processes must each hold the whole model (DDP), got DeepSpeed or FSDP. Use one "
            "process, or neither of these."
        )
    # These two train in float32 weights of their own; who passes an optimizer knows its steps.
    if not shards and trainer.optimizer is None:
        warn_about_small_steps(
            [parameter for parameter in trainer.model.parameters() if parameter.requires_grad],
            trainer.args.learning_rate,
            option="learning_rate",
            optim=trainer.args.optim,
        )
    truncates = trainer.top_p < 1.0 or trainer.top_k > 0 or bool(trainer.min_p)
    if truncates or trainer.repetition_penalty != 1.0:
        logger.warning(
            "`top_p`, `top_k`, `min_p` and `repetition_penalty` change what is sampled but not the "
            "log-probabilities that are trained, which biases the update. Leave them off."
        )


def check_context(model: Any, max_trajectory_tokens: int) -> None:
    """Refuse episodes that are longer than what the model can read."""
    context = model.config.get_text_config().to_dict().get("max_position_embeddings")
    if context is not None and context < max_trajectory_tokens:
        raise ValueError(
            f"`max_trajectory_tokens` must be at most {context}, the context of the model, got "
            f"{max_trajectory_tokens}."
        )


def check_generation_settings(model: Any) -> None:
    """Refuse generation settings that no play follows, but that the first save would fail at.

    transformers saves again what it loaded, whatever it says. TRL, which puts the tokenizer's
    padding there, makes it something new, which has to be without contradictions.
    """
    if isinstance(model, PeftModel):
        return  # An adapter is saved without them.
    try:
        with TemporaryDirectory() as folder:
            model.generation_config.save_pretrained(folder)
    except ValueError as error:
        raise ValueError(
            "`model` must have a `generation_config` without contradictions, or no checkpoint could be "
            "saved. Load the model, change `model.generation_config`, and pass the loaded model. "
            f"transformers says: {error}"
        ) from error


@torch.no_grad()
def warn_about_small_steps(
    parameters: Iterable[Tensor], rate: float, *, option: str, optim: str
) -> None:
    """Say so where most weights are of a coarser type than the steps that are made with them.

    A step of Adam is about as large as the learning rate, whatever the gradient. Added to a weight
    w, it is rounded away unless it is half of the distance to the next number, eps |w| / 2 or less,
    and nothing of it is left for the next update. With 1e-6, weights above 2.6e-4 stand still in
    bfloat16 (eps = 2 ** -7), where usual ones are about 0.02; in float32, those above 17.

    Args:
        parameters: What is trained.
        rate: Highest learning rate.
        option: The option that says so.
        optim: Name of the optimizer; the steps of others than Adam's kind have other sizes.
    """
    coarse = [p for p in parameters if p.dtype in (torch.bfloat16, torch.float16)]
    if not coarse or rate == 0.0 or "adam" not in optim:
        return
    dtype, count = coarse[0].dtype, sum(p.numel() for p in coarse)
    eps = torch.finfo(dtype).eps
    still = sum(int((p.abs() > 2.0 * rate / eps).sum()) for p in coarse) / count
    if still <= 0.5:
        return
    size = math.sqrt(sum(p.float().square().sum().item() for p in coarse) / count)
    logger.warning(
        f"{still:.0%} of the trained weights are {str(dtype)[6:]}, and a step of `{option}` {rate:g} "
        "is less than half of the distance to the next number, so that they stand still. Load the "
        'model with `dtype="float32"` (`bf16=True` computes in bfloat16 all the same), or raise '
        f"`{option}` to {eps / 2.0 * size:.1e} or more."
    )


def generates_jointly(trainer: GRPOTrainer) -> bool:
    """Tell whether all processes must make every call of vLLM together."""
    is_shared = trainer.vllm_mode == "server" or trainer.vllm_tensor_parallel_size > 1
    return bool(trainer.accelerator.num_processes > 1 and is_shared)


def check_recorded_logps(trajectories: Sequence[Trajectory]) -> None:
    """Refuse episodes in which a sampled token has no recorded log-probability.

    Args:
        trajectories: Those of all processes, so that all of them end, and none waits for another.

    Raises:
        ValueError: Saying how many there are.
    """
    sampled = [
        logp
        for t in trajectories
        for logp, is_action in zip(t.logps, t.action_mask, strict=True)
        if is_action
    ]
    if missing := sum(map(math.isnan, sampled)):
        raise ValueError(
            "`old_logps='rollout'` needs the log-probability of every sampled token, but vLLM "
            f"reported none for {missing} of {len(sampled)}. Use `old_logps='recompute'`."
        )


def check_finite(what: str, value: float, remedy: str) -> None:
    """End training before a step that would make weights infinite or NaN, and save them.

    Args:
        what: Name of the number.
        value: The same on all processes, so that all of them end.
        remedy: Option to lower.

    Raises:
        FloatingPointError: If the number is not finite.
    """
    if not math.isfinite(value):
        raise FloatingPointError(
            f"The {what} is {value}; the step was not made, and checkpoints are unharmed. Lower "
            f"{remedy} or `max_grad_norm`."
        )


def warn_about_template_end(tokenizer: Any, token_id: int) -> None:
    """Say that vLLM, which takes its end tokens from the model, does not stop where a turn ends."""
    logger.warning(
        f"The chat template ends turns with {tokenizer.convert_ids_to_tokens(token_id)!r}, which is "
        "not among the model's end tokens, so replies run on to `max_new_tokens_per_turn`. Pass "
        f"`generation_kwargs={{'stop_token_ids': [{token_id}]}}`."
    )


def log_warning(message: str) -> None:
    """Log a warning, of several processes on the main one, also before anybody has begun a run."""
    # accelerate's logger refuses to say anything before there is a state to ask for the main process.
    (logger if PartialState._shared_state else logger.logger).warning(message)


def warn_about_open_think(chat: ChatCodec, *, think: bool, option: str) -> None:
    """Say that replies cannot be valid where the chat template writes their first tag itself.

    Args:
        chat: Codec of the template.
        think: Whether replies must hold a think block.
        option: Name of the option that says so.
    """
    if think and chat.opens_think:
        log_warning(
            "The chat template opens `<think>` itself, so replies begin behind the tag and count as "
            f"malformed. Pass `chat_template_kwargs` that switch it off, another template, or `{option}=False`."
        )


def uses_reference_engine(trainer: GRPOTrainer) -> bool:
    """Tell which engine plays; where the cached one cannot, say why and take the reference."""
    args = trainer.args
    if args.rollout_engine == "reference" or trainer.use_vllm:
        return True
    reason = find_obstacle(trainer.model)
    if args.generation_kwargs or args.cache_implementation:
        reason = "`generation_kwargs` and `cache_implementation` are for transformers' `generate`"
    if reason is not None:
        logger.warning(f"Rollouts use `rollout_engine='reference'`, which is slower: {reason}.")
    return reason is not None


def check_rollout_arguments(seeds: Sequence[int], num_generations: int, temperature: float) -> None:
    """Refuse arguments of `StarPOTrainer.rollout` that no rollout could mean."""
    are_seeds = not isinstance(seeds, SupportsIndex) and all(
        isinstance(seed, SupportsIndex) and seed >= 0 for seed in seeds
    )
    if not are_seeds:
        raise ValueError(f"`seeds` must be whole numbers of at least 0, got {seeds!r}.")
    if not isinstance(num_generations, SupportsIndex):
        raise TypeError(f"`num_generations` must be a whole number, got {num_generations!r}.")
    if not isinstance(temperature, Real):
        raise TypeError(f"`temperature` must be a number, got {temperature!r}. 0 is greedy.")
    if num_generations < 1:
        raise ValueError(f"`num_generations` must be at least 1, got {num_generations}.")
    if not 0 <= temperature < math.inf:
        raise ValueError(
            f"`temperature` must be finite and at least 0, got {temperature}. 0 is greedy."
        )


def warn_about_dead_groups(
    iteration: int, zero_variance_ratio: float, *, skips_kl: bool = False
) -> None:
    """Say so when most groups of a rollout have no variance, once if that leaves out a KL term."""
    if skips_kl:
        logger.warning_once(
            "A rollout taught nothing, and its update was skipped, the KL to the reference "
            "included: alone, Adam would make full steps of it, back to where training started."
        )
    if zero_variance_ratio > DEAD_GROUPS_WARNING:
        logger.warning(
            f"In iteration {iteration}, {zero_variance_ratio:.0%} of the groups have no variance "
            "and teach nothing. Raise `num_generations`, or choose start states that are neither "
            "hopeless nor trivial."
        )
