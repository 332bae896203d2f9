"""A whole rollout of a real policy, against one forward pass over the finished rows."""

import copy

import pytest
import torch
from torch import nn
from transformers import GenerationConfig

import ragen_envs  # noqa: F401  # registers the ids
from ragen_trl.engines import ReferenceEngine
from ragen_trl.environments import EnvSpec, make_pools
from ragen_trl.generation import sample_replies
from ragen_trl.rollout import TokenLimits, play_episodes, start_episodes
from ragen_trl.start_states import GroupStart
from tests.rollouts import make_codec

TEMPERATURE = 1.3
LIMIT = 9
NUM_TURNS = 5
ENVS = ["ragen/Bandit-v0", EnvSpec("ragen/FrozenLake-v0"), "ragen/Sokoban-v0"]


@pytest.fixture(scope="module")
def policy(tiny_model, tiny_tokenizer):
    """An untrained policy that ends about every tenth token."""
    model = copy.deepcopy(tiny_model)
    head = nn.Linear(model.config.hidden_size, model.config.vocab_size)
    nn.init.zeros_(head.bias)
    head.weight.data.copy_(tiny_model.lm_head.weight.data)
    head.bias.data[tiny_tokenizer.eos_token_id] = 4.0
    model.lm_head = head
    return model


@pytest.fixture(scope="module")
def trajectories(policy, tiny_tokenizer):
    """Four episodes of five turns in each environment, side by side."""
    torch.manual_seed(0)
    ends = [tiny_tokenizer.eos_token_id]

    def generate(prompt_ids, max_new_tokens):
        config = GenerationConfig(
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=0,
            max_new_tokens=max_new_tokens,
            pad_token_id=tiny_tokenizer.pad_token_id,
            eos_token_id=ends,
        )
        return sample_replies(policy, prompt_ids, config, eos_token_ids=ends)

    pools = make_pools(ENVS, {"max_turns": NUM_TURNS})
    return play_episodes(
        start_episodes(
            [(GroupStart(pool, 20), g, m) for g, pool in enumerate(pools) for m in range(4)]
        ),
        engine=ReferenceEngine(generate),
        chat=make_codec(tiny_tokenizer),
        limits=TokenLimits(LIMIT, 4096),
    )


def pass_over_rows(model, trajectories, *, fill):
    """Return each row's log-probability of every completion token, from one padded batch."""
    rows = [t.prompt_ids + t.completion_ids for t in trajectories]
    width = max(map(len, rows))
    ids = torch.tensor([row + [fill] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    logps = torch.log_softmax(logits / TEMPERATURE, dim=-1)
    logps = logps.gather(2, ids[:, 1:, None]).squeeze(2)
    return [
        logps[i, len(t.prompt_ids) - 1 :][: len(t.completion_ids)]
        for i, t in enumerate(trajectories)
    ]


def reply_lengths(trajectory):
    return [trajectory.turn_index.count(turn) for turn in range(NUM_TURNS)]


def test_rollout_has_what_the_other_tests_need(trajectories, tiny_tokenizer):
    # Control: cut and ended replies, in the middle of an episode and at its end.
    assert all(len(t.turns) == NUM_TURNS for t in trajectories)
    end = tiny_tokenizer.eos_token_id
    last = [t.completion_ids[-1] == end for t in trajectories]
    assert set(last) == {True, False}
    lengths = [length for t in trajectories for length in reply_lengths(t)[:-1]]
    assert len(set(lengths)) > 5
    assert lengths.count(LIMIT) > 3
    assert len({len(t.prompt_ids) for t in trajectories}) == len(ENVS)


@pytest.mark.parametrize("fill", [0, 5])
def test_recorded_logps_equal_one_padded_forward_pass(policy, trajectories, fill):
    recomputed = pass_over_rows(policy, trajectories, fill=fill)
    for trajectory, logps in zip(trajectories, recomputed, strict=True):
        is_action = torch.tensor(trajectory.action_mask)
        recorded = torch.tensor(trajectory.logps)
        torch.testing.assert_close(recorded[is_action], logps[is_action], atol=1e-4, rtol=0)
        # Shifted by one they differ: the tolerance can tell.
        shifted = logps.roll(1)[is_action]
        assert not torch.allclose(recorded[is_action], shifted, atol=1e-2)
        assert recorded[~is_action].eq(0).all()


def test_decoded_row_equals_the_templates_rendering(trajectories, tiny_tokenizer):
    end = tiny_tokenizer.eos_token_id
    for trajectory in trajectories:
        messages = [
            {"role": role, "content": content}
            for turn in trajectory.turns
            for role, content in (("user", turn.observation), ("assistant", turn.reply))
        ]
        rendering = tiny_tokenizer.apply_chat_template(messages, tokenize=False)
        row = tiny_tokenizer.decode(trajectory.prompt_ids + trajectory.completion_ids)
        # Nothing is written behind the last reply, not even an end that it lacks.
        rest = "\n" if trajectory.completion_ids[-1] == end else "<|im_end|>\n"
        assert row + rest == rendering


def test_rows_hold_one_end_of_turn_per_message(trajectories, tiny_tokenizer):
    end = tiny_tokenizer.eos_token_id
    for trajectory in trajectories:
        row = trajectory.prompt_ids + trajectory.completion_ids
        has_end = trajectory.completion_ids[-1] == end
        assert row.count(end) == 2 * NUM_TURNS - 1 + has_end
        sampled = [
            i
            for i, is_action in zip(trajectory.completion_ids, trajectory.action_mask, strict=True)
            if is_action
        ]
        # A reply has its own end, or is exactly as long as the limit.
        cut = sum(length == LIMIT for length in reply_lengths(trajectory))
        assert NUM_TURNS - cut <= sampled.count(end) <= NUM_TURNS
