"""Does the reasoning depend on the prompt? Every reasoning, scored after every prompt."""

import copy
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TrainerControl, TrainerState
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from ragen_trl.completions import split_by_length
from ragen_trl.functional import Information, measure_information
from ragen_trl.reasoning import Reasoning, split_first_reply
from ragen_trl.rollout_callback import RolloutCallback
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.trajectory import Trajectory

# Tokens that one forward pass holds in its cache; a bound on memory.
MAX_CACHED_TOKENS = 2**15
# Share of padding, as in `split_by_length`: there are few rows, and a pass of its own costs more.
MAX_PADDING = 0.25


class MutualInformationCallback(RolloutCallback):
    """Log how much the reasoning of a rollout depends on its prompts (RAGEN-2, arXiv:2604.06268).

    X is what the policy had read in the first turn up to the think tag, Z the tokens that it then
    sampled; the whole reply with `enable_think=False`. Replies without a thought are left out.
    Texts that vary (high `mi/conditional_entropy`) and say nothing about their prompt
    (`mi/mutual_information` near 0) are the sign of template collapse, which no entropy shows.

    Logged are, for N pairs with M different prompts: `mi/mutual_information` (in nats, at most
    log M), `mi/retrieval_accuracy` (chance is 1 / M), `mi/conditional_entropy`; the two quantities
    in nats also with mean log-probabilities per token in place of sums (`..._per_token`);
    `mi/num_pairs` (N), `mi/num_prompts` (M) and `time/mutual_information` in seconds.

    Args:
        every: Rollouts from one measurement to the next; the first rollout is measured.
        max_pairs: Most pairs of prompt and reasoning, dealt evenly to the groups. Up to the square
            of this number of texts are scored.

    Raises:
        ValueError: If an argument is out of its range.
    """

    def __init__(self, every: int = 5, max_pairs: int = 64) -> None:
        if not isinstance(every, int) or every < 1:
            raise ValueError(
                f"`every` must be a whole number of at least 1, got {every}. Use 5 for little cost."
            )
        if not isinstance(max_pairs, int) or max_pairs < 2:
            raise ValueError(
                f"`max_pairs` must be a whole number of at least 2, got {max_pairs}. Pairs are "
                "compared; use 64."
            )
        self._every, self._max_pairs = every, max_pairs

    def on_rollout_end(
        self,
        args: StarPOConfig,
        state: TrainerState,
        control: TrainerControl,
        *,
        trajectories: Sequence[Trajectory],
        model: Any,
        processing_class: PreTrainedTokenizerBase,
        iteration: int,
        **kwargs: Any,
    ) -> dict[str, float]:
        """Measure the rollout, if it is its turn."""
        if iteration % self._every:
            return {}
        begin = time.perf_counter()
        pairs = choose_pairs(
            trajectories, processing_class, think=args.enable_think, max_pairs=self._max_pairs
        )
        metrics = {"mi/num_pairs": float(len(pairs))}
        if pairs:
            metrics |= measure_pairs(model, pairs)
        return metrics | {"time/mutual_information": time.perf_counter() - begin}


def choose_pairs(
    trajectories: Sequence[Trajectory],
    tokenizer: PreTrainedTokenizerBase,
    *,
    think: bool,
    max_pairs: int,
) -> list[Reasoning]:
    """Take first turns with a thought: the first of every group, then the second of every group, ...

    Args:
        trajectories: Episodes of a rollout.
        tokenizer: Reads their tokens.
        think: Whether replies hold a think block.
        max_pairs: Most that are taken.
    """
    counts: Counter[int] = Counter()
    ranks = []
    for trajectory in trajectories:
        ranks.append(counts[trajectory.group_id])
        counts[trajectory.group_id] += 1
    pairs: list[Reasoning] = []
    for i in sorted(range(len(ranks)), key=ranks.__getitem__):
        pair = split_first_reply(trajectories[i], tokenizer, think=think)
        if pair is not None:
            pairs.append(pair)
        if len(pairs) == max_pairs:
            break
    return pairs


def measure_pairs(model: Any, pairs: Sequence[Reasoning]) -> dict[str, float]:
    """Score every reasoning after every prompt and return the metrics, without those of the work.

    Args:
        model: As for `cross_score`.
        pairs: At least one.
    """
    prompts = list(dict.fromkeys(pair.prompt_ids for pair in pairs))
    column = {prompt: j for j, prompt in enumerate(prompts)}
    texts = list(dict.fromkeys(pair.reasoning_ids for pair in pairs))
    row = {text: i for i, text in enumerate(texts)}
    scores = cross_score(model, prompts, texts)
    scores = scores[[row[pair.reasoning_ids] for pair in pairs]]
    owners = torch.tensor([column[pair.prompt_ids] for pair in pairs])
    lengths = torch.tensor([len(pair.reasoning_ids) for pair in pairs])
    whole = measure_information(scores, owners)
    per_token = measure_information(scores / lengths.unsqueeze(1), owners)
    return {
        **_name(whole),
        "mi/mutual_information_per_token": per_token.mutual_information.item(),
        "mi/conditional_entropy_per_token": per_token.conditional_entropy.item(),
        "mi/num_prompts": float(len(prompts)),
    }


def _name(information: Information) -> dict[str, float]:
    return {f"mi/{name}": value.item() for name, value in information._asdict().items()}


def cross_score(
    model: Any,
    prompts: Sequence[Sequence[int]],
    texts: Sequence[Sequence[int]],
    *,
    max_cached_tokens: int = MAX_CACHED_TOKENS,
) -> Tensor:
    """Return log p(text | prompt) for every text and every prompt.

    Each prompt is read once; its keys and values are repeated for the texts, which follow in
    batches of similar length. Logits are never held as a whole.

    Args:
        model: Causal language model with TRL's fused head, as every trainer of TRL's gives it to its
            policy; its temperature is that of the scores.
        prompts: Token ids, at least one each.
        texts: Token ids, at least one each.
        max_cached_tokens: Bound on rows times tokens of a batch; a single row may exceed it.

    Returns:
        Sums over the tokens of each text. Shape (number of texts, number of prompts), float64, on
        the CPU.

    Raises:
        ValueError: If the model has layers that keep other things than keys and values.
    """
    scores = torch.empty(len(texts), len(prompts), dtype=torch.float64)
    parts = split_by_length([len(text) for text in texts], max_padding=MAX_PADDING)
    with torch.no_grad():
        for j, prompt in enumerate(prompts):
            cache = _read(model, prompt[:-1])
            for part in parts:
                width = len(prompt) + max(len(texts[i]) for i in part)
                for rows in _slices(part, max(1, max_cached_tokens // width)):
                    follow = [texts[i] for i in rows]
                    scores[rows, j] = _score_after(model, cache, prompt[-1], follow)
    return scores


def _slices(rows: Sequence[int], size: int) -> Iterator[list[int]]:
    for first in range(0, len(rows), size):
        yield list(rows[first : first + size])


def _read(model: Any, ids: Sequence[int]) -> DynamicCache:
    """Return what the model keeps of a text."""
    cache = DynamicCache(config=model.config)
    kinds = {type(layer) for layer in cache.layers}
    if not kinds <= {DynamicLayer, DynamicSlidingWindowLayer}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            f"`model` must keep keys and values in every layer, got layers with {names}. Leave "
            "MutualInformationCallback out for this model."
        )
    if ids:
        inputs = torch.tensor([list(ids)], device=model.device)
        model(input_ids=inputs, cache=cache, use_cache=True, logits_to_keep=1)
    return cache


def _score_after(
    model: Any, cache: DynamicCache, last_id: int, texts: Sequence[Sequence[int]]
) -> Tensor:
    """Score texts that follow `cache` and one token more; shape (number of texts,)."""
    width = max(map(len, texts))
    # What is behind a text is never read by it, and its label says that it is not scored.
    ids = [[last_id, *text[:-1]] + [0] * (width - len(text)) for text in texts]
    labels = [[*text] + [-100] * (width - len(text)) for text in texts]
    repeated = copy.deepcopy(cache)
    repeated.batch_repeat_interleave(len(texts))
    output = model(
        input_ids=torch.tensor(ids, device=model.device),
        shift_labels=torch.tensor(labels, device=model.device),
        cache=repeated,
        fused_lm_head=True,
    )
    return torch.as_tensor(output.log_probs).cpu().double().sum(1)
