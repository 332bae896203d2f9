"""Sets of environments that are evaluated together."""

from ragen_trl.environments import EnvSpec


def _bandit(high: str, low: str) -> EnvSpec:
    return EnvSpec("ragen/Bandit-v0", kwargs={"high_arm_name": high, "low_arm_name": low})


# The generalisation suite of RAGEN (arXiv:2504.20073): what a policy that was trained on 6x6 Sokoban,
# or on a bandit whose arms are Engineer (high) and Teacher (low), does elsewhere. The last two test
# the bandit: with new names that suggest the same order, and with the order reversed.
GENERALISATION = {
    "Sokoban": EnvSpec("ragen/Sokoban-v0"),
    "Sokoban, 8x8 with two boxes": EnvSpec("ragen/LargeSokoban-v0"),
    "Sokoban, new symbols": EnvSpec("ragen/SokobanNewVocab-v0"),
    "FrozenLake": EnvSpec("ragen/FrozenLake-v0"),
    "Bandit, Engineer over Teacher": _bandit("Engineer", "Teacher"),
    "Bandit, Trader over Librarian": _bandit("Trader", "Librarian"),
    "Bandit, Librarian over Trader": _bandit("Librarian", "Trader"),
}

SUITES = {"generalisation": GENERALISATION}
