"""Engines that write the policy's replies: one interface, and what stands behind it.

A rollout starts a session with the first prompts of its episodes, then asks for replies turn by turn
and hands over the tokens that came in between. How the engine remembers what was said is its own
affair: the reference reads everything anew in every turn, the cached engine nothing twice.
"""

from ragen_trl.engines.base import Engine, GenerateFn, Reply, Session
from ragen_trl.engines.cached import (
    CachedEngine,
    find_obstacle,
    has_prompt_adapter,
)
from ragen_trl.engines.joint import JointEngine
from ragen_trl.engines.luck import ReplyLuck
from ragen_trl.engines.reference import ReferenceEngine
from ragen_trl.engines.sampling import SamplingRules
from ragen_trl.engines.stopping import AnswerStop

__all__ = [
    "AnswerStop",
    "CachedEngine",
    "Engine",
    "GenerateFn",
    "JointEngine",
    "ReferenceEngine",
    "Reply",
    "ReplyLuck",
    "SamplingRules",
    "Session",
    "find_obstacle",
    "has_prompt_adapter",
]
