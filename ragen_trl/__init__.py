"""StarPO for TRL: train language-model agents in multi-turn Gymnasium environments."""

from ragen_trl import evaluate
from ragen_trl.environments import EnvSpec
from ragen_trl.monitor import EchoTrapCallback
from ragen_trl.mutual_information import MutualInformationCallback
from ragen_trl.rollout_callback import RolloutCallback
from ragen_trl.starpo_config import StarPOConfig
from ragen_trl.starpo_trainer import StarPOTrainer
from ragen_trl.trajectory import Trajectory, Turn

__all__ = [
    "EchoTrapCallback",
    "EnvSpec",
    "MutualInformationCallback",
    "RolloutCallback",
    "StarPOConfig",
    "StarPOTrainer",
    "Trajectory",
    "Turn",
    "evaluate",
]
