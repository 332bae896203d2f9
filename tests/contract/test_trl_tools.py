"""The tool classes in TRL's own trainer, which has no part of ours in it."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template

from ragen_envs.tools import BanditTools, FrozenLakeTools, SokobanTools, environment_success
from ragen_trl.tiny.tokenizer import build_tokenizer

DIRECTIONS = ("Up", "Down", "Left", "Right")


@pytest.mark.parametrize(
    ("tools", "name", "argument", "choices"),
    [
        (SokobanTools, "move", "direction", ["Up", "Down", "Left", "Right"]),
        (FrozenLakeTools, "move", "direction", ["Left", "Down", "Right", "Up"]),
        (BanditTools, "pull", "arm", None),
    ],
)
def test_tools_become_schemas_that_name_the_legal_actions(tools, name, argument, choices):
    game = tools()
    schema = get_json_schema(getattr(game, name))["function"]
    assert schema["name"] == name
    assert schema["parameters"]["required"] == [argument]
    assert schema["parameters"]["properties"][argument].get("enum") == choices
    if choices is not None:
        assert tuple(choices) == game.env.get_wrapper_attr("action_names")


def play_conversation(tokenizer, seed):
    """Return a whole game as text: random directions, each one call of the tool."""
    rng = np.random.default_rng(seed)
    game = SokobanTools(luck_seed=0)
    messages = [{"role": "user", "content": game.reset(seed=seed)}]
    for direction in rng.choice(DIRECTIONS, size=3).tolist():
        call = {
            "type": "function",
            "function": {"name": "move", "arguments": {"direction": direction}},
        }
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        if not game.done:
            messages.append({"role": "tool", "name": "move", "content": game.move(direction)})
    return tokenizer.apply_chat_template(messages, tools=[game.move], tokenize=False)


def read_conversation(tokenizer, text):
    """Return ids and labels; what the assistant writes is learned, everything else is not."""
    ids, labels = [], []
    for i, part in enumerate(text.split("<|im_start|>assistant\n")):
        reply, end, rest = part.partition("<|im_end|>") if i else ("", "", part)
        for piece, is_learned in ((reply + end, True), (rest, False)):
            piece_ids = tokenizer(piece)["input_ids"]
            ids += piece_ids
            labels += piece_ids if is_learned else [-100] * len(piece_ids)
        head = tokenizer("<|im_start|>assistant\n")["input_ids"]
        ids += head
        labels += [-100] * len(head)
    return torch.tensor([ids]), torch.tensor([labels])


@pytest.fixture(scope="module")
def caller():
    """A policy that has learned to call `move`, in all directions, and nothing else."""
    words = build_tokenizer([])
    words.chat_template = qwen2_5_chat_template
    texts = [play_conversation(words, seed) for seed in range(150)]
    tokenizer = build_tokenizer(texts)
    tokenizer.chat_template = qwen2_5_chat_template
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=len(tokenizer),
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=2,
                max_position_embeddings=4096,
                tie_word_embeddings=True,
                initializer_range=64**-0.5,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=len(texts))
    for text in texts:
        ids, labels = read_conversation(tokenizer, text)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model, tokenizer


def test_plain_grpo_trainer_takes_two_steps_with_the_tools(caller, tmp_path):
    model, tokenizer = caller
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    games = []

    def make_game():
        games.append(SokobanTools(max_solution_length=4, luck_seed=len(games)))
        return games[-1]

    rows = {"prompt": [[{"role": "user", "content": ""}]] * 8, "seed": list(range(8))}
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=environment_success,
        train_dataset=Dataset.from_dict(rows),
        environment_factory=make_game,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=8,
            num_generations=4,
            learning_rate=1e-3,
            temperature=0.7,
            max_completion_length=1200,
            max_tool_calling_iterations=4,
            reward_weights=[0.0],
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            log_completions=False,
            use_cpu=True,
            seed=0,
        ),
    )
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == 2
    # 8 rollouts at a time, each in a game of its own, reused at the next step.
    assert len(games) == 8
    last = logs[-1]
    paid = [game.get_reward() for game in games]
    assert last["rewards/SokobanTools/mean"] == pytest.approx(sum(paid) / 8, abs=1e-5)
    assert last["reward"] == pytest.approx(sum(paid) / 8, abs=1e-5)
    solved = sum(game.success for game in games) / 8
    assert last["rewards/environment_success/mean"] == pytest.approx(solved)
    # The calls arrived, several in one rollout, and what they paid differs.
    assert max(game.num_actions for game in games) >= 2
    assert sum(game.num_actions for game in games) >= 8
    assert last["reward_std"] > 0
    assert any(not torch.equal(before[name], p) for name, p in model.named_parameters())


def test_plain_grpo_trainer_gives_the_rollouts_of_a_prompt_one_start(caller, tmp_path):
    model, tokenizer = caller
    starts = []

    class Recorded(SokobanTools):
        def reset(self, **row):
            starts.append((row["seed"], super().reset(**row)))
            return starts[-1][1]

    rows = {"prompt": [[{"role": "user", "content": "Play."}]] * 4, "seed": [7, 8, 9, 10]}
    GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict(rows),
        environment_factory=Recorded,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=80,
            max_tool_calling_iterations=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
        ),
    ).train()
    assert len(starts) == 8
    assert all(text.startswith("\n\nYou are the player") for _, text in starts)
    by_seed = {seed: {text for s, text in starts if s == seed} for seed, _ in starts}
    assert len(by_seed) == 2
    assert all(len(texts) == 1 for texts in by_seed.values())
    assert len(set.union(*by_seed.values())) == 2
