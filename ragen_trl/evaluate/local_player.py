"""A model in this process that plays evaluation episodes, just as the trainer does."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from ragen_trl.chat import ChatCodec
from ragen_trl.engines import (
    AnswerStop,
    CachedEngine,
    Engine,
    ReferenceEngine,
    Reply,
    ReplyLuck,
    SamplingRules,
    find_obstacle,
)
from ragen_trl.evaluate.records import EpisodeJob, EpisodeRecord
from ragen_trl.evaluate.scoring import record_episode
from ragen_trl.evaluate.settings import EvaluationSettings
from ragen_trl.generation import sample_replies
from ragen_trl.loading import load_policy
from ragen_trl.rollout import TokenLimits, play_episodes, start_episodes
from ragen_trl.start_states import GroupStart
from ragen_trl.trainer_checks import check_context, warn_about_open_think

# Numbers of every weight tensor that tell one training state from another.
_FINGERPRINT_SAMPLES = 64


class LocalPlayer:
    """Plays with transformers on one device, several episodes side by side.

    Every episode has luck of its own, so that neither `batch_size` nor the order of the jobs
    changes what is played. (In half precision, rounding depends on the batch and may do so.)

    Args:
        model: A causal language model; it is put into evaluation mode.
        tokenizer: Its tokenizer, with a chat template.
        name: How results call the model.
        settings: Temperature and token limits.
        batch_size: Episodes that are played side by side.
        bf16: Whether to compute in bfloat16 around the weights as they are (autocast), as training
            does where a GPU supports it.

    Raises:
        ValueError: If the model's context is shorter than an episode may get, if there is no chat
            template, or if `batch_size` is below 1.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        settings: EvaluationSettings,
        batch_size: int = 16,
        bf16: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {batch_size}.")
        check_context(model, settings.max_trajectory_tokens)
        self.name = name
        self.batch_size = batch_size
        self._model, self._tokenizer, self._bf16 = model.eval(), tokenizer, bf16
        self._temperature = settings.temperature
        self._limits = TokenLimits(settings.max_new_tokens_per_turn, settings.max_trajectory_tokens)
        self._chat = ChatCodec(
            tokenizer,
            eos_token_ids=find_end_ids(model, tokenizer),
            chat_template_kwargs=settings.chat_template_kwargs,
        )
        self._end_ids = self._chat.end_ids
        warn_about_open_think(self._chat, think=settings.think, option="think")
        self._stop = AnswerStop(tokenizer) if settings.stop_at_answer else None
        self._engine = self._make_engine()

    def play(self, jobs: Sequence[EpisodeJob], on_episode: Callable[[EpisodeRecord], None]) -> None:
        """Play every job once, `batch_size` at a time.

        An episode whose first prompt leaves no room for a reply is reported with an error.

        Raises:
            RuntimeError: As `play_episodes`, if an environment or the engine fails.
        """
        for first in range(0, len(jobs), self.batch_size):
            wave = jobs[first : first + self.batch_size]
            trajectories = play_episodes(
                start_episodes([(GroupStart(job.pool, job.seed), 0, job.sample) for job in wave]),
                engine=self._engine,
                chat=self._chat,
                limits=self._limits,
                has_own_luck=True,
            )
            for job, trajectory in zip(wave, trajectories, strict=True):
                error = None
                if not trajectory.turns:
                    error = (
                        f"the first prompt has {len(trajectory.prompt_ids)} tokens, and "
                        f"`max_trajectory_tokens` is {self._limits.max_trajectory_tokens}"
                    )
                on_episode(record_episode(trajectory, env=job.env, sample=job.sample, error=error))

    def usage(self) -> Mapping[str, float]:
        """Return nothing: a local model costs nothing per token."""
        return {}

    def identity(self) -> dict[str, Any]:
        """Return what tells this model from another, or from itself after more training."""
        return {
            "name": self.name,
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "bf16": self._bf16,
            "weights": fingerprint_weights(self._model),
        }

    @contextmanager
    def _open_model(self) -> Iterator[Any]:
        device = self._model.device.type
        with torch.autocast(device, dtype=torch.bfloat16, enabled=self._bf16):
            yield self._model

    def _make_engine(self) -> Engine:
        if find_obstacle(self._model) is not None:
            return ReferenceEngine(self._write, stop=self._stop)
        rules = SamplingRules(temperature=self._temperature)
        return CachedEngine(self._open_model, rules, eos_token_ids=self._end_ids, stop=self._stop)

    def _write(
        self, prompt_ids: list[list[int]], most: int, luck: ReplyLuck | None = None
    ) -> list[Reply]:
        pad = self._tokenizer.pad_token_id
        config = GenerationConfig(
            max_new_tokens=most,
            do_sample=self._temperature > 0,
            temperature=self._temperature or 1.0,
            top_k=0,  # Said, or transformers would keep 50 tokens.
            pad_token_id=self._end_ids[0] if pad is None else pad,
            eos_token_id=self._end_ids,
            disable_compile=True,
        )
        with self._open_model() as model:
            return sample_replies(model, prompt_ids, config, eos_token_ids=self._end_ids, luck=luck)


def load_local_player(
    model: str,
    *,
    settings: EvaluationSettings,
    batch_size: int = 16,
    dtype: str = "float32",
    bf16: bool | None = None,
    device: torch.device | str = "cpu",
) -> LocalPlayer:
    """Load a model, with the code that training loads it with, and make a player of it.

    Args:
        model: "tiny", a model id, a folder with a model, or a folder with a LoRA adapter.
        settings: Temperature and token limits.
        batch_size: Episodes that are played side by side.
        dtype: Of the weights.
        bf16: See `LocalPlayer`; by default as in `StarPOConfig`, where a GPU supports it.
        device: Where the model runs.

    Raises:
        ValueError: If there is no such model, or the player cannot use it.
    """
    try:
        policy, tokenizer = load_policy(model, dtype=dtype)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"`model` must be 'tiny', a model id, or a folder with a model or an adapter, and "
            f"{model!r} could not be loaded: {error}"
        ) from error
    if bf16 is None:
        bf16 = torch.device(device).type == "cuda" and torch.cuda.is_bf16_supported()
    return LocalPlayer(
        policy.to(device),
        tokenizer,
        name=str(Path(model)) if Path(model).exists() else model,
        settings=settings,
        batch_size=batch_size,
        bf16=bf16,
    )


def find_end_ids(model: Any, tokenizer: Any) -> list[int]:
    """Return the ids that end a reply: the tokenizer's first, then the generation settings'."""
    given = model.generation_config.eos_token_id
    ids = [given] if isinstance(given, int) else list(given or [])
    own = tokenizer.eos_token_id
    return ids if own in ids else [own, *ids]


def fingerprint_weights(model: Any) -> str:
    """Return a short text that changes with any training; the same on every device.

    It is a hash of names, shapes and evenly spaced numbers of all weights.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, weights in sorted(model.state_dict().items()):
        flat = weights.detach().reshape(-1)
        chosen = flat[:: max(1, len(flat) // _FINGERPRINT_SAMPLES)].cpu().contiguous()
        digest.update(f"{name} {tuple(weights.shape)} {weights.dtype}".encode())
        digest.update(chosen.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
