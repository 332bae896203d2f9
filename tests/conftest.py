"""Settings of every test run, and the small policy that the trainer's tests share."""

import os

# Before anything imports them: no test may reach for the network, and tiny tensors gain nothing
# from threads. Packages with models are imported in the fixtures, so that the tests of
# `ragen_envs` run without them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

# Slippery and not, with and without arms that change places: enough words for every test.
TINY_ENVS = ("ragen/Bandit-v0", "ragen/FrozenLake-v0", "ragen/Sokoban-v0")


def pytest_collection_modifyitems(config, items):
    """Leave out what needs Chromium unless `-m` names it; any `-m` replaces that of pyproject.toml."""
    if "browser" in config.option.markexpr:
        return
    out = [item for item in items if item.get_closest_marker("browser")]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


@pytest.fixture(scope="session")
def tiny():
    """An untrained policy and its tokenizer; tests leave both as they are."""
    import torch

    from ragen_trl.tiny import build_tiny_policy

    torch.set_num_threads(1)
    return build_tiny_policy(TINY_ENVS, hidden_size=32, num_layers=2)


@pytest.fixture(scope="session")
def tiny_model(tiny):
    return tiny[0]


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny):
    return tiny[1]
