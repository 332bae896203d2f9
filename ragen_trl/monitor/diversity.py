"""How much the replies of a rollout differ from each other, in words."""

import re
from collections.abc import Hashable, Sequence, Set

import numpy as np
import numpy.typing as npt

# A word, or one sign that is none; whitespace does not count.
_TOKEN = re.compile(r"\w+|[^\w\s]")
# Columns of the incidence matrix that are held at a time.
_BLOCK = 8192


def distinct_ngrams(texts: Sequence[str], *, n: int = 3) -> float:
    """Return the share of n-grams of words that are different ones, over all texts together.

    distinct-n of Li et al. 2016 (arXiv:1510.03055). Words are counted without regard to case, every
    other sign is a word of its own, and a text with fewer than n words is one n-gram. The share
    falls with the number of texts, so only rollouts of one size can be compared.

    Args:
        texts: The replies of a rollout.
        n: Words per n-gram, at least 1.

    Returns:
        Number of different n-grams by number of n-grams, in `(0, 1]`; 1.0 of no text.

    Raises:
        ValueError: If `n` is less than 1.

    Example:
        >>> distinct_ngrams(["go up now", "go up now", "go left now"])
        0.6666666666666666
    """
    grams = [gram for text in texts for gram in _ngrams(text, n)]
    return len(set(grams)) / len(grams) if grams else 1.0


def near_duplicate_ratio(
    texts: Sequence[str], *, n: int = 3, similarity: float = 0.8, max_texts: int = 128
) -> float:
    """Return the share of pairs of texts that say almost the same.

    Two texts are near-duplicates where the Jaccard similarity of their sets of n-grams (see
    `distinct_ngrams`), common ones by all, is at least `similarity`. k texts that occur
    equally often give about 1 / k.

    Args:
        texts: The replies of a rollout.
        n: Words per n-gram, at least 1.
        similarity: Least similarity of near-duplicates, in `(0, 1]`.
        max_texts: Texts that are looked at, evenly spread over the given ones: the number of pairs
            grows with its square.

    Returns:
        A share in `[0, 1]`; 0.0 of fewer than two texts.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> near_duplicate_ratio(["go up now", "Go up now", "go left now"])
        0.3333333333333333
    """
    if not 0 < similarity <= 1:
        raise ValueError(f"`similarity` must be in (0, 1], got {similarity}. 0.8 is usual.")
    if max_texts < 2:
        raise ValueError(f"`max_texts` must be at least 2, got {max_texts}. One text has no pair.")
    if len(texts) < 2:
        return 0.0
    chosen = np.linspace(0, len(texts) - 1, min(max_texts, len(texts))).round().astype(int)
    sets = [set(_ngrams(texts[index], n)) for index in chosen]
    common = _count_common(sets)
    sizes = np.diag(common)
    union = sizes[:, None] + sizes[None, :] - common
    is_similar = common >= similarity * union
    first, second = np.triu_indices(len(sets), k=1)
    return float(is_similar[first, second].mean())


def _ngrams(text: str, n: int) -> list[tuple[str, ...]]:
    if n < 1:
        raise ValueError(f"`n` must be at least 1, got {n}. 3 is usual.")
    words = _TOKEN.findall(text.casefold())
    return [tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1))]


def _count_common(sets: Sequence[Set[Hashable]]) -> npt.NDArray[np.float64]:
    """Return how many members each two sets share, those of a set with itself included."""
    columns: dict[Hashable, int] = {}
    rows = [[columns.setdefault(member, len(columns)) for member in members] for members in sets]
    common = np.zeros((len(sets), len(sets)))
    row_of = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    column_of = np.array([column for row in rows for column in row])
    for begin in range(0, len(columns), _BLOCK):
        is_here = (column_of >= begin) & (column_of < begin + _BLOCK)
        incidence = np.zeros((len(sets), _BLOCK), dtype=np.float32)
        incidence[row_of[is_here], column_of[is_here] - begin] = 1.0
        common += incidence @ incidence.T
    return common
