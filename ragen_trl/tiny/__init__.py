"""The embedded policy, for demonstrations, tests and experiments without a GPU."""

from ragen_trl.tiny.policy import build_tiny_policy, load_tiny_policy, warm_start

__all__ = ["build_tiny_policy", "load_tiny_policy", "warm_start"]
