"""A JSON object from a file, with the names that it gives two values in one object.

Every reader of JSON that engines use takes the last of them without a word, and so do the numbers here; but somebody
who edited the other one should hear of it.
"""

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from sublight.errors import InputFileError
from sublight.files import read_small_file

_HINT = "the file as the model's release has it"
_NAME = re.compile(rb'"\s*:')
_LARGEST_SEARCHED_BYTES = 4 * 1024 * 1024  # configurations have kilobytes; what is larger was written by a program


def read_object(path: Path) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The object, and every name that stands twice in one of its objects.

    NaN and Infinity are let through, as published files hold them in fields nobody sizes with. Raises InputFileError
    for what cannot be read or is no JSON object.
    """
    asked = f"reading {path}"
    data = read_small_file(path, asked, _HINT)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as strict:
        import json

        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise InputFileError(asked, f"this is not whole JSON ({strict})", _HINT) from None
    if not isinstance(value, dict):
        raise InputFileError(asked, f"it holds a {type(value).__name__}, not an object", "a model's config.json")
    return value, _twice(data, value) if len(data) <= _LARGEST_SEARCHED_BYTES else ()


def _twice(data: bytes, value: Any) -> tuple[str, ...]:
    """Each name that is kept leaves one `":` in the text, and text may have more: only then is it parsed again."""
    if len(_NAME.findall(data)) <= _names(value):
        return ()
    import json

    found: list[str] = []

    def seen(pairs: list[tuple[str, Any]]) -> None:
        found.extend(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)

    with suppress(ValueError, RecursionError):  # of what only the other reader takes, nothing is said
        json.loads(data, object_pairs_hook=seen)
    return tuple(dict.fromkeys(found))


def _names(value: Any) -> int:
    """How many names all objects of a value have. Without recursion: a file may be as deep as the reader goes."""
    count, open_values = 0, [value]
    while open_values:
        one = open_values.pop()
        if isinstance(one, dict):
            count += len(one)
            open_values.extend(one.values())
        elif isinstance(one, list):
            open_values.extend(one)
    return count
