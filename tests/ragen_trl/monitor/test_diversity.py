import itertools
import random

import numpy as np
import pytest

from ragen_trl.monitor.diversity import distinct_ngrams, near_duplicate_ratio


def naive_grams(text, n):
    """Split letter by letter: words of letters and digits, every other sign by itself."""
    words, word = [], ""
    for sign in text.lower() + " ":
        if sign.isalnum() or sign == "_":
            word += sign
            continue
        words += [word] if word else []
        words += [] if sign.isspace() else [sign]
        word = ""
    if len(words) < n:
        return [" ".join(words)]
    return [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]


def naive_near_duplicates(texts, n, similarity):
    pairs = list(itertools.combinations([set(naive_grams(text, n)) for text in texts], 2))
    return sum(len(a & b) / len(a | b) >= similarity for a, b in pairs) / len(pairs)


def random_texts(seed, num_texts=30, num_words=40):
    generator = random.Random(seed)
    words = ["left", "Right", "up,", "box", "42", "goal.", "<answer>", "√"]
    originals = [" ".join(generator.choices(words, k=num_words)) for _ in range(num_texts // 3)]
    texts = []
    for _ in range(num_texts):
        # Copies of the same few texts with up to four words changed.
        changed = generator.choice(originals).split()
        for _ in range(generator.randrange(5)):
            changed[generator.randrange(num_words)] = generator.choice(words)
        texts.append(" ".join(changed))
    return texts


def test_distinct_ngrams_by_hand():
    # Trigrams: a b c, b c d; a b c, b c e: three different ones of four.
    assert distinct_ngrams(["a b c d", "A  b c e"]) == 3 / 4
    # Signs are words of their own: ( a, a ), ) ! in the first; the second is short: one gram.
    assert distinct_ngrams(["(a)!", "a"], n=2) == 1.0
    assert distinct_ngrams(["same words here"] * 10) == 1 / 10
    assert distinct_ngrams(["", ""]) == 1 / 2
    assert distinct_ngrams([]) == 1.0


@pytest.mark.parametrize("n", [1, 2, 3])
def test_distinct_ngrams_equal_the_naive_count(n):
    texts = random_texts(seed=n)
    grams = [gram for text in texts for gram in naive_grams(text, n)]
    assert distinct_ngrams(texts, n=n) == len(set(grams)) / len(grams)


def test_near_duplicates_by_hand():
    # Bigrams of the first two: ab bc cd and ab bc ce; two of four in common.
    texts = ["a b c d", "a b c e", "x y z"]
    assert near_duplicate_ratio(texts, n=2, similarity=0.5) == 1 / 3
    assert near_duplicate_ratio(texts, n=2, similarity=0.51) == 0.0
    assert near_duplicate_ratio(["one", "one", "one"]) == 1.0
    assert near_duplicate_ratio(["one"]) == near_duplicate_ratio([]) == 0.0


def test_k_equally_frequent_texts_give_about_one_of_k_pairs():
    texts = ["left left left", "right right right", "up up up", "down down down"] * 25
    # Each text has 24 twins among the other 99.
    assert near_duplicate_ratio(texts) == pytest.approx(24 / 99)


@pytest.mark.parametrize("similarity", [0.3, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("n", [1, 3])
def test_near_duplicates_equal_the_naive_double_loop(n, similarity):
    texts = random_texts(seed=n)
    expected = naive_near_duplicates(texts, n, similarity)
    assert near_duplicate_ratio(texts, n=n, similarity=similarity) == pytest.approx(expected)
    if n == 3 and similarity in (0.3, 0.6):
        assert 0 < expected < 1


def test_near_duplicates_beyond_one_block_of_ngrams_equal_the_double_loop():
    generator = np.random.default_rng(0)
    texts = [" ".join(map(str, generator.integers(0, 10**6, 400))) for _ in range(30)]
    texts += [text + " end" for text in texts[:10]]
    assert len({gram for text in texts for gram in naive_grams(text, 3)}) > 8192
    expected = naive_near_duplicates(texts, 3, 0.8)
    assert expected == 10 / 780
    assert near_duplicate_ratio(texts) == pytest.approx(expected)


def test_near_duplicates_look_at_texts_spread_over_the_rollout():
    texts = ["same"] * 100 + [f"other {i}" for i in range(100)]
    # Of ten, five are the same: 10 of 45 pairs.
    assert near_duplicate_ratio(texts, max_texts=10) == pytest.approx(10 / 45)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (distinct_ngrams, {"n": 0}),
        (near_duplicate_ratio, {"n": 0}),
        (near_duplicate_ratio, {"similarity": 0.0}),
        (near_duplicate_ratio, {"similarity": 1.1}),
        (near_duplicate_ratio, {"max_texts": 1}),
    ],
)
def test_arguments_out_of_range_are_refused(function, options):
    (name,) = options
    with pytest.raises(ValueError, match=f"`{name}`"):
        function(["a", "b"], **options)
