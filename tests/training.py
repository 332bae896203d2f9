"""What tests of training share: environments, recorded gradients, comparisons."""

from dataclasses import replace

import torch
from peft import LoraConfig
from transformers import TrainerCallback

from ragen_trl import EnvSpec
from ragen_trl.trl_compat import use_adapter

BANDIT = "ragen/Bandit-v0"
LAKE = EnvSpec("ragen/FrozenLake-v0", kwargs={"is_slippery": False})


class KeepGradients(TrainerCallback):
    """Seeds every rollout and copies every gradient just before the optimizer uses it."""

    def __init__(self, seed):
        self.seed = seed
        self.steps = []

    def on_step_begin(self, args, state, control, **kwargs):
        torch.manual_seed(self.seed)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.steps.append(
            {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        )


class KeepCriticGradients:
    """Copies the critic's gradients just before each of its steps."""

    def __init__(self, trainer):
        self.steps = []
        learner = trainer.critic
        parameters = learner.critic.trained_parameters()
        learner.optimizer.register_step_pre_hook(
            lambda *_: self.steps.append(
                {n: p.grad.clone() for n, p in parameters.items() if p.grad is not None}
            )
        )


def copy_model(trained):
    """Make a model of its own with the same weights."""
    model = type(trained)(trained.config)
    model.load_state_dict(trained.state_dict())
    return model


def logits(model):
    """Read some tokens as in play."""
    with torch.no_grad():
        return model.eval()(torch.arange(4, 16).view(1, -1)).logits


def reference_logits(trainer):
    """Read the same tokens as the reference of the trainer's KL."""
    if trainer.ref_model is not None:
        return logits(trainer.ref_model)
    name = "ref" if "ref" in trainer.model.peft_config else None
    with use_adapter(trainer.model, adapter_name=name):
        return logits(trainer.model)


def change(model, amount=0.02):
    """Warm the model's trainable weights up, in memory alone."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(amount * torch.randn(parameter.shape, generator=generator))
    return model


def copy_tensors(named):
    return {name: tensor.detach().clone() for name, tensor in named}


def pay_alike(trajectories):
    """Let episodes of one environment end alike after their first turn, so that they teach nothing."""
    return [
        replace(t, turn_rewards=[0.15], format_penalties=[0.0], turns=t.turns[:1])
        for t in trajectories
    ]


def train_logs(trainer):
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def assert_same_tensors(left, right, *, atol):
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-4, atol=atol, msg=name)


def make_lora():
    torch.manual_seed(0)
    return LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.3)
