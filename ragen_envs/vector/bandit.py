"""Many bandits at once."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ragen_envs.bandit import BanditEnv
from ragen_envs.vector.boards import Texts
from ragen_envs.vector.streams import Indices
from ragen_envs.vector.text_vector_env import Flags, TextVectorEnv, Transitions


class BanditVectorEnv(TextVectorEnv):
    """As many `BanditEnv`s; see there for the game and `arguments`, and `TextVectorEnv`."""

    single_class = BanditEnv
    _single: BanditEnv

    def __init__(self, num_envs: int = 1, **arguments: Any) -> None:
        super().__init__(num_envs, **arguments)
        single, num_envs = self._single, self.num_envs
        first, second = single.arms
        self._orders = ((first, second), (second, first))
        high_arm = self._high_arm = single.high_arm
        self._low_arm_reward = next(arm.reward for arm in single.arms if arm is not high_arm)
        # By order, the index of the better arm.
        self._high_actions = np.array([order.index(high_arm) for order in self._orders])
        self._orders_now = np.zeros(num_envs, np.intp)
        self._pulled = np.zeros(num_envs, np.intp)  # 0 for none, else 1 + the action
        self._texts_by_state = np.empty((2, 3), object)
        self._arms_by_state = np.empty((2, 3), object)
        for state in np.ndindex(2, 3):
            self._set_bandit(*state)
            self._texts_by_state[state] = single._observe()
            self._arms_by_state[state] = None if single.pulled is None else single.pulled.name

    def _set_bandit(self, order: int, pulled: int) -> None:
        arms = self._orders[order]
        self._single._set_order(*arms)
        self._single.pulled = arms[pulled - 1] if pulled else None

    def _start(self, indices: Indices, options: Mapping[str, Any]) -> None:
        self._orders_now[indices] = self._streams.draw(indices, 1)[:, 0] < 0.5
        self._pulled[indices] = 0

    def _advance(self, indices: Indices, actions: Indices) -> Transitions:
        self._pulled[indices] = actions + 1
        rewards = np.full(len(indices), self._low_arm_reward)
        is_high = self._is_success(indices)
        rewards[is_high] = self._high_arm.reward
        if self._high_arm.probability != 1.0:
            luck = self._streams.draw(indices[is_high], 1)[:, 0]
            rewards[is_high] *= luck < self._high_arm.probability
        pulled = np.ones(len(indices), np.bool_)
        return Transitions(rewards, terminated=pulled, is_effective=pulled.copy())

    def _write(self, indices: Indices) -> Texts:
        return self._texts_by_state[self._orders_now[indices], self._pulled[indices]]

    def _is_success(self, indices: Indices) -> Flags:
        is_high: Flags = self._pulled[indices] == self._high_actions[self._orders_now[indices]] + 1
        return is_high

    def _details(self, indices: Indices) -> dict[str, npt.NDArray[Any]]:
        return {"arm": self._arms_by_state[self._orders_now[indices], self._pulled[indices]]}

    def _load(self, index: int) -> None:
        self._set_bandit(int(self._orders_now[index]), int(self._pulled[index]))
