import copy
import pickle

import pytest
from gymnasium import spaces
from gymnasium.vector.utils import (
    batch_space,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from ragen_envs.text_space import SharedText

SPACE = SharedText(max_length=5, charset="ab√\n")


def write_both(memory, space, texts):
    for index, text in enumerate(texts):
        write_to_shared_memory(space, index, text, memory)


def test_shared_text_read_once_follows_later_writes():
    memory = create_shared_memory(SPACE, n=2)
    texts = read_from_shared_memory(SPACE, memory, n=2)
    for written in [("ab", "√\n√"), ("a", "babab")]:
        write_both(memory, SPACE, written)
        assert tuple(texts) == written
        assert (texts[0], texts[-1], len(texts)) == (written[0], written[1], 2)


def test_shared_text_deep_copy_is_a_plain_tuple_that_stays():
    memory = create_shared_memory(SPACE, n=2)
    texts = read_from_shared_memory(SPACE, memory, n=2)
    write_both(memory, SPACE, ("ab", "b"))
    copied = copy.deepcopy(texts)
    write_both(memory, SPACE, ("b", "a"))
    assert copied == ("ab", "b")


def test_plain_text_read_once_does_not_follow_later_writes():
    # The reason for `SharedText`. If this fails, Gymnasium has mended it.
    space = spaces.Text(max_length=5, charset="ab√\n")
    memory = create_shared_memory(space, n=2)
    texts = read_from_shared_memory(space, memory, n=2)
    write_both(memory, space, ("ab", "b"))
    assert tuple(texts) == ("aaaaa", "aaaaa")


def test_shared_text_equals_the_plain_space_and_survives_pickling():
    assert spaces.Text(max_length=5, charset="ab√\n") == SPACE
    assert pickle.loads(pickle.dumps(SPACE)) == SPACE
    assert isinstance(batch_space(SPACE, 3), spaces.Tuple)


def test_shared_text_deep_copies_share_characters_and_no_luck():
    space = SharedText(max_length=50, charset="ab√\n", seed=3)
    copied = copy.deepcopy(space)
    assert copied == space
    assert copied.character_set is space.character_set
    alike = [space.sample() for _ in range(3)]
    assert [copied.sample() for _ in range(3)] == alike
    assert space.sample() == copied.sample()


@pytest.mark.parametrize(("text", "inside"), [("a√b", True), ("", False), ("c", False)])
def test_shared_text_contains_what_the_plain_space_contains(text, inside):
    assert SPACE.contains(text) is inside
