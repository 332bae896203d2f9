"""Files for others to read: JSON that every reader takes, and files that are whole or not there."""

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO


def to_json(content: Any, *, indent: int | None = None) -> str:
    r"""Write JSON and nothing beyond it: null for a number that is not finite.

    Text stays readable, apart from halves of surrogate pairs, which no file in UTF-8 can hold.

    Example:
        >>> to_json({"reward": float("nan"), "state": "_√"})
        '{"reward": null, "state": "_√"}'
    """
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError:
        text = json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, indent=indent)
    # The escape of such a half in Python is the one in JSON.
    return text.encode(errors="backslashreplace").decode()


def to_readable(text: str) -> str:
    """Return text that can be written anywhere: `?` for bytes of a file's name that are no text."""
    return text.encode(errors="replace").decode()


@contextmanager
def replace_file(path: str | Path) -> Iterator[TextIO]:
    """Open a text file that takes the place of `path` once all is written, and not before.

    After an error there is what was there before. A device or a pipe is written to as it is.

    Raises:
        OSError: If the file cannot be written.
    """
    # What a link points to is replaced, and not the link.
    target = Path(os.path.realpath(path))
    is_special = target.exists() and not target.is_file()
    draft = target if is_special else target.with_name(f"{target.name}.draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            yield file
        if not is_special:
            if target.exists():
                shutil.copymode(target, draft)
            os.replace(draft, target)
    except BaseException:
        if not is_special:
            with suppress(OSError):
                draft.unlink()
        raise


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
