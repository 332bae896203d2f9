"""Evaluating one model: which episodes, who plays them, and where they are kept."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from tqdm.auto import tqdm

from ragen_trl.collation import split_evenly
from ragen_trl.environments import EnvLike, make_eval_pools, open_pools
from ragen_trl.evaluate.local_player import LocalPlayer, load_local_player
from ragen_trl.evaluate.records import EpisodeJob, EpisodeRecord, Player
from ragen_trl.evaluate.result import EvaluationResult
from ragen_trl.evaluate.settings import EvaluationSettings
from ragen_trl.evaluate.store import RESULTS_FILE, EpisodeKey, EpisodeStore, write_json
from ragen_trl.evaluation import EvaluationPanel


def evaluate(
    model: str | Player,
    env: EnvLike | Sequence[EnvLike] | Mapping[str, EnvLike],
    *,
    settings: EvaluationSettings | None = None,
    output: str | Path | None = None,
    batch_size: int = 16,
    dtype: str = "float32",
    bf16: bool | None = None,
    show_progress: bool = False,
) -> EvaluationResult:
    """Let a model play fixed start states, each exactly once, beside random play and the optimum.

    What an episode draws depends on its start state and sample alone: neither the batch size nor
    the number of processes changes the result. Started with `accelerate launch --num_processes n`,
    on CPUs with `torchrun --nproc_per_node n`, every process plays its share, and all return the same.

    Args:
        model: "tiny", a model id, a folder with a model or a LoRA adapter, or a `Player`.
        env: Environments in any form that `StarPOTrainer` takes as `eval_env`.
        settings: Which start states, how often, and under which limits.
        output: Folder for `settings.json`, `episodes.jsonl` (while playing) and `results.json`. An
            evaluation that was interrupted goes on from the episodes that lie there; those that
            ended with an error are played again.
        batch_size: Episodes that a local model plays side by side, per process.
        dtype: Of a local model's weights.
        bf16: Whether a local model computes in bfloat16 (autocast); by default where a GPU
            supports it, as in training.
        show_progress: Whether the main process shows a bar.

    Raises:
        ValueError: If the model cannot be loaded, or `output` belongs to other settings.
        RuntimeError: If an environment fails; what was played until then is kept in `output`.

    Example:
        >>> from ragen_trl.evaluate import EvaluationSettings, evaluate
        >>> few = EvaluationSettings(episodes=4, think=False, max_new_tokens_per_turn=24)
        >>> result = evaluate("tiny", "ragen/Bandit-v0", settings=few)
        >>> len(result.episodes), list(result.summaries)
        (4, ['ragen/Bandit-v0'])
    """
    begin = time.perf_counter()
    settings = settings or EvaluationSettings()
    # Without saying so, accelerate leaves processes on CPUs to themselves, and each plays everything.
    state = PartialState(cpu=not torch.accelerator.is_available())
    pools = make_eval_pools(_as_given(env), [], settings.agent_turns)
    with open_pools(pools.values()):
        panel = EvaluationPanel(
            pools,
            first_seed=settings.seed,
            num_seeds=settings.episodes,
            validation_share=settings.validation_share,
        )
        player = model
        if isinstance(player, str):
            player = load_local_player(
                player,
                settings=settings,
                batch_size=batch_size,
                dtype=dtype,
                bf16=bf16,
                device=state.device,
            )
        asked = _describe(player, panel, settings)
        jobs = list_jobs(panel, settings.samples)
        store = (
            EpisodeStore(output, asked, rank=state.process_index) if output is not None else None
        )
        episodes, num_played = _play(player, jobs, store, state, show_progress=show_progress)
        result = EvaluationResult(
            settings=asked,
            episodes=episodes,
            random_success={name: panel.random_success(name) for name in panel.names},
            optimal_success={name: panel.optimal_success(name) for name in panel.names},
            usage=_add_up(gather_object([dict(player.usage())])),
            timings={
                "seconds": time.perf_counter() - begin,
                "num_episodes_played": num_played,
                "num_processes": state.num_processes,
                "batch_size": batch_size,
                "device": str(state.device),
            },
        )
        if store is not None and state.is_main_process:
            store.finish(episodes)
            write_json(store.folder / RESULTS_FILE, result.to_dict())
        state.wait_for_everyone()
        return result


def list_jobs(panel: EvaluationPanel, samples: int) -> list[EpisodeJob]:
    """Return every episode of an evaluation once: environment by environment, seed by seed."""
    return [
        EpisodeJob(name, pool, seed, sample)
        for name, pool in panel.pools.items()
        for seed in panel.seeds(name)
        for sample in range(samples)
    ]


def _play(
    player: Player,
    jobs: Sequence[EpisodeJob],
    store: EpisodeStore | None,
    state: PartialState,
    *,
    show_progress: bool,
) -> tuple[list[EpisodeRecord], int]:
    """Play what is not there yet; return all episodes in the order of the jobs, and how many now."""
    done = store.read() if store is not None else {}
    # Nobody may write before all have read: they deal out what is missing, each for itself.
    state.wait_for_everyone()
    missing = [job for job in jobs if EpisodeKey(job.env, job.seed, job.sample) not in done]
    own = missing[split_evenly(len(missing), state.num_processes)[state.process_index]]
    played: list[EpisodeRecord] = []
    if store is not None:
        store.drop_cut_line()
    with _progress(len(own), is_shown=show_progress and state.is_main_process) as bar:

        def keep(record: EpisodeRecord) -> None:
            played.append(record)
            if store is not None:
                store.append(record)
            bar.update()

        player.play(own, keep)
    new = gather_object(played)
    records = done | {EpisodeKey.of(record): record for record in new}
    return [records[EpisodeKey(job.env, job.seed, job.sample)] for job in jobs], len(new)


def _describe(
    player: Player, panel: EvaluationPanel, settings: EvaluationSettings
) -> dict[str, Any]:
    """Write down all that decides the outcome."""
    identity = player.identity() if isinstance(player, LocalPlayer) else {"name": player.name}
    environments = {}
    for name, pool in panel.pools.items():
        source = pool.spec.id_or_factory
        environments[name] = {
            "source": source if isinstance(source, str) else pool.name,
            "kwargs": {key: _plain(value) for key, value in pool.spec.kwargs.items()},
            "agent_turns": {key: _plain(value) for key, value in pool.spec.agent_turns.items()},
        }
    return {"model": identity, "environments": environments, **asdict(settings)}


def _add_up(usages: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Add up what the players of all processes took."""
    names = dict.fromkeys(name for usage in usages for name in usage)
    return {name: sum(usage.get(name, 0) for usage in usages) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _as_given(env: Any) -> Any:
    return env if isinstance(env, Mapping | list) else [env]


@contextmanager
def _progress(count: int, *, is_shown: bool) -> Iterator[Any]:
    with tqdm(total=count, unit="episode", leave=False, disable=not is_shown) as bar:
        yield bar
