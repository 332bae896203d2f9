"""How the critic learns: its loss, its optimizer and schedule, its part of a checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import Trainer, get_scheduler

from ragen_trl.completions import can_share_prompts, run_completions
from ragen_trl.critic import Critic, build_critic
from ragen_trl.functional import (
    Moments,
    clipped_value_loss,
    explained_variance_from_moments,
    masked_sum,
)
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.trainer_checks import check_finite, warn_about_small_steps
from ragen_trl.trl_compat import disable_dropout_in_model

WEIGHTS_FILE = "critic.safetensors"
OPTIMIZER_FILE = "critic_optimizer.pt"
# Of `learning_rate`, as in RAGEN: 1e-6 and 1e-5, with LoRA 1e-5 and 1e-4.
DEFAULT_RATE_FACTOR = 10.0


class ValueParts(NamedTuple):
    """Sums over the sampled tokens of a micro-batch; sums of several add up.

    Attributes:
        value_loss: Clipped squared error, weighted as in the loss.
        clipped: Tokens whose value left the clip range.
        returns: Targets.
        squared_returns: Their squares.
        errors: Targets minus values.
        squared_errors: Their squares.
        num_tokens: Sampled tokens.
    """

    value_loss: Tensor
    clipped: Tensor
    returns: Tensor
    squared_returns: Tensor
    errors: Tensor
    squared_errors: Tensor
    num_tokens: Tensor


def value_loss(
    values: Tensor, batch: Mapping[str, Tensor], *, clip_range: float
) -> tuple[Tensor, ValueParts]:
    """Compute one micro-batch's part of the update's value loss, and its parts.

    loss = sum_i w_i sum_t clipped squared error, over sampled tokens, with the weights of the
    policy's loss, so that the parts of all micro-batches and processes add up.

    Args:
        values: Values now. Shape `(B, T)`.
        batch: A batch of `collate` with `old_values` and `returns`.
        clip_range: See `clipped_value_loss`.
    """
    mask, returns = batch["action_mask"], batch["returns"]
    loss = clipped_value_loss(values, batch["old_values"], returns, mask, clip_range=clip_range)
    weighted = (loss.per_token_loss * batch["loss_weights"].unsqueeze(1)).sum()
    # Variances are differences of these sums; float32 would leave rounding errors of them.
    returns, errors = returns.double(), returns.double() - values.detach().double()
    parts = ValueParts(
        value_loss=weighted.detach(),
        clipped=loss.is_clipped.sum(),
        returns=masked_sum(returns, mask),
        squared_returns=masked_sum(returns.square(), mask),
        errors=masked_sum(errors, mask),
        squared_errors=masked_sum(errors.square(), mask),
        num_tokens=mask.sum(),
    )
    return weighted, parts


def value_metrics(parts: Sequence[float]) -> dict[str, float]:
    """Turn the parts of a whole update, summed over micro-batches and processes, into metrics.

    `critic/explained_variance` is 1 - Var(returns - values) / Var(returns): 1 for a critic that is
    right, 0 for one that knows no more than the mean, and 0 where all returns are equal.
    """
    total = dict(zip(ValueParts._fields, parts, strict=True))
    tokens = total["num_tokens"]
    if tokens == 0:
        return {}
    explained_variance = explained_variance_from_moments(
        _moments(tokens, total["returns"], total["squared_returns"]),
        _moments(tokens, total["errors"], total["squared_errors"]),
    )
    return {
        "value_loss": total["value_loss"],
        "critic/explained_variance": explained_variance.item(),
        "critic/clip_ratio": total["clipped"] / tokens,
        "critic/return_mean": total["returns"] / tokens,
        "critic/value_mean": (total["returns"] - total["errors"]) / tokens,
    }


def _moments(count: float, total: float, total_of_squares: float) -> Moments:
    mean = total / count
    # Of equal numbers, rounding can leave a little less than nothing.
    squared_deviations = max(0.0, total_of_squares - total * mean)
    return Moments(*torch.tensor([count, mean, squared_deviations], dtype=torch.float64))


class CriticLearner:
    """Trains a critic beside the policy, micro-batch by micro-batch.

    The critic has its own backward pass, after the policy's, and its own optimizer step in the last
    micro-batch of an update. Its gradients are added up over the processes here: it is no part of
    the model that DDP wraps.

    Args:
        critic: What is trained.
        args: Configuration of the run.
        accelerator: Device, precision and processes of the run.
        decay_names: The policy's rule for which parameters of a module `weight_decay` acts on.
    """

    def __init__(
        self,
        critic: Critic,
        args: StarPOConfig,
        accelerator: Accelerator,
        decay_names: Callable[[nn.Module], Sequence[str]],
    ) -> None:
        self.critic = critic.to(accelerator.device)
        self._args, self._accelerator = args, accelerator
        self._parameters = list(critic.trained_parameters().values())
        optimizer_cls, kwargs = Trainer.get_optimizer_cls_and_kwargs(args, critic)
        rate = args.critic_learning_rate
        kwargs["lr"] = DEFAULT_RATE_FACTOR * args.learning_rate if rate is None else rate
        self.optimizer = optimizer_cls(self._parameter_groups(decay_names), **kwargs)
        warn_about_small_steps(
            self._parameters, kwargs["lr"], option="critic_learning_rate", optim=args.optim
        )
        self.create_scheduler(args.max_steps)
        self._shares = can_share_prompts(args, critic.backbone)
        backbone: Any = critic.own_backbone
        if args.gradient_checkpointing and backbone is not None:
            backbone.activation_checkpointing_enable(args.gradient_checkpointing_kwargs)

    def _parameter_groups(
        self, decay_names: Callable[[nn.Module], Sequence[str]]
    ) -> list[dict[str, Any]]:
        """Return the groups of the policy's optimizer: with weight decay, and without."""
        decayed = {name for module in self.critic.owners() for name in decay_names(module)}
        named = self.critic.trained_parameters()
        return [
            {
                "params": [p for name, p in named.items() if (name in decayed) is decays],
                "weight_decay": self._args.weight_decay if decays else 0.0,
            }
            for decays in (True, False)
        ]

    def create_scheduler(self, num_training_steps: int) -> None:
        """Begin the schedule of the learning rate, as the policy's begins in every training."""
        args = self._args
        # What an update that was broken off has left.
        self._sums: Tensor | None = None
        self.optimizer.zero_grad()
        schedule = args.critic_lr_scheduler_type or args.lr_scheduler_type
        self.scheduler = get_scheduler(
            schedule,
            self.optimizer,
            num_warmup_steps=args.get_warmup_steps(num_training_steps),
            num_training_steps=num_training_steps,
            # They belong to the policy's kind of schedule.
            scheduler_specific_kwargs=(
                args.lr_scheduler_kwargs if schedule == args.lr_scheduler_type else None
            ),
        )

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters."""
        return sum(parameter.numel() for parameter in self._parameters)

    @torch.no_grad()
    def values(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the values of a batch's tokens as the critic sees them now, shape `(B, T)`."""
        self.critic.eval()
        with self.critic.active():
            return self._forward(batch)

    def learn(self, batch: Mapping[str, Tensor]) -> dict[str, float]:
        """Train on one micro-batch; in the last one of an update return the update's metrics.

        Raises:
            FloatingPointError: If loss or gradient are not finite; the step is not made.
        """
        self.critic.train()
        with self.critic.active():
            loss, parts = value_loss(
                self._forward(batch), batch, clip_range=self._args.value_clip_range
            )
            torch.autograd.backward(loss)
        sums = torch.stack([part.double() for part in parts])
        self._sums = sums if self._sums is None else self._sums + sums
        return self._step() if self._accelerator.sync_gradients else {}

    def skip(self) -> dict[str, float]:
        """Let a micro-batch that teaches nothing pass; the schedule moves on as the policy's does."""
        if self._accelerator.sync_gradients:
            # Without a gradient it moves nothing; the policy's is called as well.
            self.optimizer.step()
            self.scheduler.step()
        return {}

    def save(self, folder: Path) -> None:
        """Write weights, optimizer and schedule into a checkpoint folder."""
        weights = {
            name: parameter.detach().cpu().contiguous()
            for name, parameter in self.critic.trained_parameters().items()
        }
        save_file(weights, folder / WEIGHTS_FILE)
        state = {"optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}
        torch.save(state, folder / OPTIMIZER_FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: If the checkpoint holds no critic.
            ValueError: If it holds another critic, or an optimizer without groups for weight decay.
        """
        if not (folder / WEIGHTS_FILE).exists():
            raise FileNotFoundError(
                f"`resume_from_checkpoint` must hold a critic ({WEIGHTS_FILE}), but {folder} has "
                "none. Resume with the `advantage_estimator` that it was trained with."
            )
        weights, own = load_file(folder / WEIGHTS_FILE), self.critic.trained_parameters()
        shapes, own_shapes = ({(n, tuple(w.shape)) for n, w in x.items()} for x in (weights, own))
        if shapes != own_shapes:
            differing = sorted({name for name, _ in shapes ^ own_shapes})
            raise ValueError(
                f"`resume_from_checkpoint` must hold the critic that is configured, but {folder} "
                f"differs in {differing[:3]}. Resume with the same model, "
                "adapter and `critic_model_name_or_path`."
            )
        state = torch.load(folder / OPTIMIZER_FILE, map_location="cpu", weights_only=True)
        self._check_groups(state["optimizer"], folder)
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(weights[name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])

    def _check_groups(self, state: Mapping[str, Any], folder: Path) -> None:
        theirs, ours = (
            [len(group["params"]) for group in optimizer["param_groups"]]
            for optimizer in (state, self.optimizer.state_dict())
        )
        if theirs != ours:
            raise ValueError(
                f"`resume_from_checkpoint` must be a checkpoint of this version, but {OPTIMIZER_FILE} "
                f"in {folder} has groups of {theirs} parameters, not {ours}, with and without weight "
                f"decay. To begin a new run with its policy, pass {str(folder)!r} as `model`."
            )

    def _forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        with self._accelerator.autocast():
            (values,) = run_completions(
                batch,
                lambda part: [self.critic(**part.inputs)],
                read_prompts=(lambda inputs: self.critic(**inputs)) if self._shares else None,
            )
        return values

    def _step(self) -> dict[str, float]:
        self._reduce_gradients()
        limit = self._args.max_grad_norm or float("inf")
        grad_norm = torch.nn.utils.clip_grad_norm_(self._parameters, limit)
        totals = self._accelerator.reduce(self._sums, reduction="sum").tolist()
        # Both of all processes, so that all of them stop, and none waits for another.
        for what, value in {"value loss": sum(totals), "critic's gradient norm": grad_norm}.items():
            check_finite(what, float(value), "`critic_learning_rate`")
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        self._sums = None
        extra = {"critic/grad_norm": grad_norm.item(), "critic/learning_rate": rate}
        return value_metrics(totals) | extra

    def _reduce_gradients(self) -> None:
        if self._accelerator.num_processes == 1:
            return
        for parameter in self._parameters:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = self._accelerator.reduce(gradient, reduction="sum")


def build_learner(
    policy: Any,
    args: StarPOConfig,
    accelerator: Accelerator,
    decay_names: Callable[[nn.Module], Sequence[str]],
) -> CriticLearner:
    """Make the critic that the configuration asks for, and what trains it; see `CriticLearner`."""
    critic = build_critic(
        policy, model_name_or_path=args.critic_model_name_or_path, dtype=policy.dtype
    )
    if args.disable_dropout:
        disable_dropout_in_model(critic)
    return CriticLearner(critic, args, accelerator, decay_names)
