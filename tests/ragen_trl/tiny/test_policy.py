import copy
import random
from dataclasses import replace

import gymnasium as gym
import pytest
import torch
from transformers import GenerationConfig, Qwen2ForCausalLM

from ragen_envs import AgentTurns
from ragen_trl.chat import ChatCodec
from ragen_trl.generation import sample_replies
from ragen_trl.tiny import build_tiny_policy, warm_start
from ragen_trl.tiny.demonstrations import Demonstration
from ragen_trl.tiny.policy import _imitation_loss
from tests.fakes import CountedEnvs, Step

BANDIT, LAKE = "ragen/Bandit-v0", "ragen/FrozenLake-v0"
SMALL = {"hidden_size": 32, "num_layers": 1}


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def sample_first_replies(model, tokenizer, env_id, count, **agent_turns):
    """Return valid or not for one sampled reply to the first message of each of `count` episodes."""
    env = AgentTurns(gym.make(env_id), **agent_turns)
    ends = [tokenizer.eos_token_id]
    chat = ChatCodec(tokenizer, eos_token_ids=ends)
    prompts = [chat.encode_start(env.reset(seed=seed)[0]) for seed in range(count)]
    config = GenerationConfig(
        do_sample=True,
        top_k=0,
        temperature=1.0,
        max_new_tokens=30,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=ends,
    )
    replies = sample_replies(model, prompts, config, eos_token_ids=ends)
    outcomes = []
    for seed, reply in enumerate(replies):
        env.reset(seed=seed)
        outcomes.append(env.step(chat.decode_reply(reply.ids))[-1]["reply"].is_valid)
    return outcomes


def test_build_tiny_policy_has_about_a_million_parameters_by_default():
    model, tokenizer = build_tiny_policy([BANDIT, LAKE])
    h, layers = model.config.hidden_size, model.config.num_hidden_layers
    # Per layer: attention 4 h^2 + 3 h, MLP 3 * h * 3h, norms 2 h; then the final norm and one table
    # for embedding and output.
    expected = layers * (4 * h**2 + 3 * h + 9 * h**2 + 2 * h) + h + h * len(tokenizer)
    assert sum(p.numel() for p in model.parameters()) == expected
    assert 0.8e6 < expected < 1.2e6
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_build_tiny_policy_is_a_float32_qwen2_ready_to_play(tiny_model, tiny_tokenizer):
    assert isinstance(tiny_model, Qwen2ForCausalLM)
    assert {p.dtype for p in tiny_model.parameters()} == {torch.float32}
    assert not tiny_model.training
    assert tiny_model.config.vocab_size == len(tiny_tokenizer)
    assert tiny_model.config.eos_token_id == tiny_tokenizer.eos_token_id
    assert tiny_model.config.pad_token_id == tiny_tokenizer.pad_token_id
    assert tiny_model.config.hidden_size == 32
    assert tiny_model.config.num_hidden_layers == 2


def test_build_tiny_policy_is_fixed_by_its_seed():
    (first, words), (again, again_words), (other, other_words) = (
        build_tiny_policy([BANDIT], seed=seed, **SMALL) for seed in (1, 1, 2)
    )
    assert torch.equal(weights(first), weights(again))
    assert not torch.equal(weights(first), weights(other))
    assert words.get_vocab() == again_words.get_vocab() == other_words.get_vocab()


def test_build_tiny_policy_leaves_the_global_random_state_alone():
    torch.manual_seed(5)
    random.seed(5)
    states = torch.get_rng_state(), random.getstate()
    build_tiny_policy([BANDIT, LAKE], **SMALL)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()


@pytest.mark.parametrize("hidden_size", [16, 48, 129])
def test_build_tiny_policy_width_that_is_no_multiple_raises(hidden_size):
    with pytest.raises(ValueError, match=f"multiple of 32, got {hidden_size}"):
        build_tiny_policy([BANDIT], hidden_size=hidden_size)


def test_build_tiny_policy_knows_the_arms_of_its_bandit():
    _, tokenizer = build_tiny_policy(
        [lambda: gym.make(BANDIT, low_arm_name="Librarian", high_arm_name="Engineer")], **SMALL
    )
    assert len(tokenizer("Librarian")["input_ids"]) == len(tokenizer("Engineer")["input_ids"]) == 1
    assert len(tokenizer("Dragon")["input_ids"]) == 6


class Door(gym.Env):
    """Says what is behind it once it has been opened, and not before."""

    observation_space = gym.spaces.Text(20, charset="abcdefghijklmnopqrstuvwxyz ")
    action_space = gym.spaces.Discrete(2)
    action_names = ("Wait", "Open")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "closed", {}

    def step(self, action):
        return ("a treasure" if action else "closed"), float(action), bool(action), False, {}


@pytest.mark.parametrize("max_turns", [1, 5])
def test_build_tiny_policy_knows_words_that_only_an_action_brings_up(max_turns):
    _, tokenizer = build_tiny_policy([Door], max_turns=max_turns, think=False, **SMALL)
    assert len(tokenizer("a treasure")["input_ids"]) == 2
    assert len(tokenizer("a mansion")["input_ids"]) > 2


def test_warm_start_lowers_the_loss_and_teaches_valid_replies():
    model, tokenizer = build_tiny_policy([BANDIT], think=False, **SMALL)
    before = weights(model).clone()
    assert not any(sample_first_replies(model, tokenizer, BANDIT, 20, think=False))
    losses = warm_start(
        model,
        tokenizer,
        [BANDIT],
        num_steps=50,
        batch_size=16,
        learning_rate=1e-2,
        teacher="random",
        think=False,
    )
    assert len(losses) == 50
    assert sum(losses[-5:]) / 5 < 0.2 * losses[0]
    # What is left is the choice of the arm: ln 2 in one of about five tokens.
    assert sum(losses[-5:]) / 5 > 0.1
    assert not torch.equal(before, weights(model))
    assert not model.training
    torch.manual_seed(0)
    valid = sample_first_replies(model, tokenizer, BANDIT, 100, think=False)
    assert sum(valid) >= 95


def test_warm_start_is_fixed_by_its_seeds(tiny_model, tiny_tokenizer):
    runs = []
    for seed in (3, 3, 4):
        model = copy.deepcopy(tiny_model)
        steps = []
        losses = warm_start(
            model,
            tiny_tokenizer,
            [BANDIT, LAKE],
            num_steps=3,
            batch_size=4,
            seed=seed,
            on_step=lambda step, loss, steps=steps: steps.append((step, loss)),
        )
        assert steps == list(enumerate(losses))
        runs.append((losses, weights(model)))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])
    assert runs[0][0] != runs[2][0]


@pytest.fixture
def batch():
    """Two demonstrations of different lengths with two replies and one; text stands behind both."""
    long = Demonstration(
        [7, 8, 30, 31, 2, 9, 10, 32, 2, 11, 12],
        [False, False, True, True, True, False, False, True, True, False, False],
        success=True,
    )
    short = Demonstration([7, 40, 2, 13], [False, True, True, False], success=False)
    return [long, short]


def test_imitation_loss_is_the_mean_over_reply_tokens(tiny_model, batch):
    total, count = 0.0, 0
    for demonstration in batch:
        ids = demonstration.token_ids
        with torch.no_grad():
            logps = torch.log_softmax(tiny_model(torch.tensor([ids])).logits[0], dim=-1)
        for i, is_reply in enumerate(demonstration.is_reply):
            if is_reply:
                total -= float(logps[i - 1, ids[i]])
                count += 1
    assert count == 7
    loss = _imitation_loss(tiny_model, batch, pad_token_id=0).item()
    assert loss == pytest.approx(total / count, abs=1e-5)


def test_imitation_loss_does_not_depend_on_what_stands_behind_the_replies(tiny_model, batch):
    loss = _imitation_loss(tiny_model, batch, pad_token_id=0)
    long, short = batch
    changed = [
        replace(long, token_ids=[*long.token_ids[:-2], 90, 91]),
        replace(short, token_ids=[*short.token_ids[:-1], 92]),
    ]
    for others in (changed, batch):
        other_loss = _imitation_loss(tiny_model, others, pad_token_id=50)
        assert other_loss.item() == pytest.approx(loss.item(), abs=1e-6)
    # The same change at a token of a reply does count.
    wrong = replace(short, token_ids=[7, 41, 2, 13])
    assert abs(_imitation_loss(tiny_model, [long, wrong], pad_token_id=0) - loss) > 1e-3


def test_imitation_loss_has_no_gradient_where_a_message_is_predicted(tiny_model, batch):
    model = copy.deepcopy(tiny_model)
    seen = []
    # The head sees exactly the positions that predict a reply token: 5 in the first row, 2 in the
    # second.
    model.lm_head.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape))
    _imitation_loss(model, batch, pad_token_id=0).backward()
    assert seen == [(7, 32)]
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_environments_are_closed_where_policy_or_warm_start_fail(tiny_model, tiny_tokenizer):
    broken, door = CountedEnvs(script=[Step(error=OSError("disk"))]), CountedEnvs()
    with pytest.raises(OSError, match="disk"):
        build_tiny_policy([broken, door], **SMALL)
    assert (broken.num_open, door.num_open) == (0, 0)
    with pytest.raises(ValueError, match="step"):
        warm_start(tiny_model, tiny_tokenizer, [door], num_steps=-1)
    assert door.num_open == 0
