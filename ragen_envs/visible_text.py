"""Which characters can be seen, and which texts look alike."""

import unicodedata

# Printable and without a mark of their own: blank braille, the fillers of Hangul, the null notehead.
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0\U0001d159")
# Joined with what stands before them: vowels and finals of Hangul, flags, tones of skin.
_JOINING = ((0x1160, 0x11FF), (0xD7B0, 0xD7FF), (0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF))
_VARIATION_SELECTORS = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))


def is_visible_symbol(text: str) -> bool:
    r"""Tell whether `text` is one character that can be seen and has a width of its own.

    Example:
        >>> [is_visible_symbol(text) for text in ("#", "√", " ", "\u0301", "\u2800", "##")]
        [True, True, False, False, False, False]
    """
    if len(text) != 1 or text.isspace() or not text.isprintable() or text in _BLANKS:
        return False
    # Marks sit on the character before them, spacing ones too.
    return not unicodedata.category(text).startswith("M") and not _is_in(text, _JOINING)


def visible_form(text: str) -> str:
    r"""Return the form that texts share which look alike: without case, composition and blanks.

    Example:
        >>> visible_form("Cafe\u0301  Bar") == visible_form("CAFÉ bar")
        True
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    seen = "".join(" " if sign in _BLANKS else sign for sign in folded if not _is_hidden(sign))
    return " ".join(seen.split())


def _is_hidden(sign: str) -> bool:
    return unicodedata.category(sign) == "Cf" or _is_in(sign, (*_VARIATION_SELECTORS, (847, 847)))


def _is_in(sign: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= ord(sign) <= last for first, last in ranges)
