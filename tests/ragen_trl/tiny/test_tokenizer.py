import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

import ragen_envs  # noqa: F401  # registers the ids
from ragen_envs.frozen_lake.env import VOCABULARIES as LAKE_VOCABULARIES
from ragen_envs.sokoban.env import VOCABULARIES as SOKOBAN_VOCABULARIES
from ragen_trl.environments import EnvSpec
from ragen_trl.tiny import build_tiny_policy
from ragen_trl.tiny.tokenizer import build_tokenizer

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LAKE, SOKOBAN = "ragen/FrozenLake-v0", "ragen/Sokoban-v0"
# Letters that spell words when they stand side by side, and letters of more than one byte.
WORDY = dict(zip(LAKE_VOCABULARIES["standard"], "otéΩ箱п", strict=True))
BOARDS = [
    *[(LAKE, symbols) for symbols in (*LAKE_VOCABULARIES, WORDY)],
    *[(SOKOBAN, symbols) for symbols in SOKOBAN_VOCABULARIES],
    ("ragen/LargeSokoban-v0", "standard"),
    ("ragen/SokobanNewVocab-v0", "letters"),
]
TEXTS = [
    "State:\nThe lake is cold; walk on.\n##_P\nActions: Up, Down",
    "<think>your reasoning</think><answer>Up || Down</answer>",
]
TOKENIZER = build_tokenizer(TEXTS)


def symbols_of(env_id, symbols):
    if not isinstance(symbols, str):
        return set(symbols.values())
    tables = LAKE_VOCABULARIES if env_id == LAKE else SOKOBAN_VOCABULARIES
    return set(tables[symbols].values())


def plain_ids(tokenizer, text):
    return tokenizer(text, split_special_tokens=True)["input_ids"]


@pytest.mark.parametrize("observation_format", ["grid", "grid_coordinates"])
@pytest.mark.parametrize(
    ("env_id", "symbols"), BOARDS, ids=lambda value: value if isinstance(value, str) else "wordy"
)
def test_board_has_one_token_per_cell(env_id, symbols, observation_format):
    kwargs = {"symbols": symbols, "observation_format": observation_format}
    spec = EnvSpec(env_id, kwargs=kwargs)
    _, tokenizer = build_tiny_policy([spec], hidden_size=32, num_layers=1)
    # Every row that a board of three cells in a line could hold, the end of an episode included.
    cells = sorted(symbols_of(env_id, symbols))
    for row in (a + b + c for a in cells for b in cells for c in cells):
        tokens = tokenizer(row)["input_ids"]
        assert [tokenizer.decode([token]) for token in tokens] == list(row)
    env = gym.make(env_id, **kwargs)
    for seed in range(100, 120):  # boards that the tokenizer was not made from
        board = env.reset(seed=seed)[0].split("row")[0].rsplit("\n", 1)[0]
        rows = [row for row in board.split("\n") if " " not in row]
        assert len(rows) >= 3
        ids = tokenizer("State:\n" + "\n".join(rows))["input_ids"]
        head = tokenizer("State:\n")["input_ids"]
        assert len(ids) == len(head) + sum(map(len, rows)) + len(rows) - 1


@pytest.mark.parametrize("env_id", ["ragen/Bandit-v0", LAKE, SOKOBAN])
def test_words_of_the_messages_are_one_token_each(tiny_tokenizer, env_id):
    env = gym.make(env_id)
    env.reset(seed=50)
    texts = [*env.get_wrapper_attr("action_names"), "State", "Reward", "Actions", " action"]
    texts += ["<think>", "</think>", "<answer>", "</answer>", " ||", "\n", "your", " reasoning"]
    assert {text: len(plain_ids(tiny_tokenizer, text)) for text in texts} == dict.fromkeys(texts, 1)


def test_special_tokens_are_single_and_distinct(tiny_tokenizer):
    ids = [tiny_tokenizer(token)["input_ids"] for token in SPECIALS]
    assert ids == [[0], [1], [2]]
    assert tiny_tokenizer.eos_token == "<|im_end|>"
    assert tiny_tokenizer.pad_token == "<|endoftext|>"
    assert tiny_tokenizer.pad_token_id != tiny_tokenizer.eos_token_id


@settings(max_examples=200, deadline=None)
@given(text=st.one_of(st.text(), st.lists(st.sampled_from([*SPECIALS, *TEXTS])).map("".join)))
def test_tokenizer_loses_nothing_of_any_text(text):
    ids = plain_ids(TOKENIZER, text)
    assert TOKENIZER.decode(ids) == text
    assert not set(ids) & {0, 1, 2}
    # With special tokens the text is the same; only the ids of their names differ.
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text


def test_every_id_has_a_token_and_words_never_seen_are_spelled():
    assert sorted(TOKENIZER.get_vocab().values()) == list(range(len(TOKENIZER)))
    assert len(plain_ids(TOKENIZER, "zebra")) == 5
    assert len(plain_ids(TOKENIZER, "walk")) == 4  # seen behind a space only
    assert len(plain_ids(TOKENIZER, " walk")) == 1


def test_tokenizer_does_not_depend_on_the_order_of_texts():
    assert build_tokenizer(TEXTS[::-1]).get_vocab() == TOKENIZER.get_vocab()
    assert build_tokenizer([*TEXTS, "another word"]).get_vocab() != TOKENIZER.get_vocab()


def test_tokenizer_saved_and_loaded_is_the_same(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    messages = [
        {"role": "user", "content": "State:\n##_√\n"},
        {"role": "assistant", "content": "é"},
    ]
    for options in ({"tokenize": False}, {"return_dict": True, "add_generation_prompt": True}):
        expected = tiny_tokenizer.apply_chat_template(messages, **options)
        assert loaded.apply_chat_template(messages, **options) == expected
    for text in (*TEXTS, *SPECIALS, "é\x00 . , 's"):
        ids = tiny_tokenizer(text)["input_ids"]
        assert loaded(text)["input_ids"] == ids
        assert loaded.decode(ids) == tiny_tokenizer.decode(ids) == text
        assert plain_ids(loaded, text) == plain_ids(tiny_tokenizer, text)
    assert (loaded.eos_token_id, loaded.pad_token_id, len(loaded)) == (2, 0, len(tiny_tokenizer))
