"""An environment of your own, from nothing: handle an invoice. Then a small policy learns it.

python examples/invoice.py
"""

import string
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ragen_envs import AgentTurns

LOOK_UPS = ("Find order", "Check delivery")
DECISIONS = ("Pay", "Return", "Remind")
UNKNOWN = "not checked"


class InvoiceEnv(gym.Env[str, int]):
    """Look up what is known about an invoice, then decide about it."""

    action_names = (*LOOK_UPS, *DECISIONS)
    task_description = (
        "You handle an invoice. Find order and Check delivery look things up. If the order differs, "
        "Return the invoice; if the goods are missing, Remind the supplier; otherwise Pay. The "
        "right decision earns 1."
    )
    action_space = spaces.Discrete(len(action_names))
    observation_space = spaces.Text(200, charset=string.ascii_letters + string.digits + " .:\n")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Draw an invoice, and which of the three decisions is right."""
        super().reset(seed=seed)
        self.amount = 100 * int(self.np_random.integers(1, 10))
        self.answer = DECISIONS[self.np_random.integers(len(DECISIONS))]
        self.order = self.goods = UNKNOWN
        return self._observe(), {"success": False}

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Look something up, or decide and end the episode."""
        name = self.action_names[action]
        if name == "Find order":
            self.order = "differs" if self.answer == "Return" else "agrees"
        if name == "Check delivery":
            self.goods = "missing" if self.answer == "Remind" else "arrived"
        is_right = name == self.answer
        return self._observe(), float(is_right), name in DECISIONS, False, {"success": is_right}

    def _observe(self) -> str:
        return f"Invoice: {self.amount} euros.\nOrder: {self.order}.\nGoods: {self.goods}."


def clerk(env: AgentTurns, rng: np.random.Generator) -> str:
    """Write the reply of a hurried clerk, who looks things up and then guesses every other time."""
    if env.get_wrapper_attr("order") == UNKNOWN:
        action = "Find order"
    elif env.get_wrapper_attr("goods") == UNKNOWN:
        action = "Check delivery"
    elif rng.random() < 0.5:
        action = env.get_wrapper_attr("answer")
    else:
        action = str(rng.choice(DECISIONS))
    return f"<answer>{action}</answer>"


def main() -> None:
    """Let a new policy imitate the clerk, then train it to handle invoices."""
    from ragen_trl import StarPOConfig, StarPOTrainer
    from ragen_trl.tiny import build_tiny_policy, warm_start

    turns = {"think": False, "max_turns": 4, "max_actions_per_turn": 1}
    model, tokenizer = build_tiny_policy([InvoiceEnv], hidden_size=64, **turns)
    warm_start(
        model, tokenizer, [InvoiceEnv], num_steps=120, learning_rate=4e-3, teacher=clerk, **turns
    )
    args = StarPOConfig(
        output_dir="runs/invoice",
        enable_think=False,
        max_turns=4,
        max_actions_per_turn=1,
        max_new_tokens_per_turn=16,
        num_env_groups=16,
        num_generations=8,
        rollout_filter_ratio=1.0,
        per_device_train_batch_size=128,
        gradient_accumulation_steps=1,
        learning_rate=5e-4,
        max_steps=12,
        eval_episodes=128,
        eval_temperature=1.0,
        report_to="none",
    )
    trainer = StarPOTrainer(model=model, processing_class=tokenizer, args=args, env=InvoiceEnv)
    before = trainer.evaluate()["eval_success_rate"]
    trainer.train()
    after = trainer.evaluate()["eval_success_rate"]
    print(f"right decisions: {before:.0%} before, {after:.0%} after")


if __name__ == "__main__":
    main()
