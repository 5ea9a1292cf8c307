"""Making JSON of what profilers write when a name holds what JSON does not allow.

Bare words such as `NaN` are replaced in a whole stretch of text at once, as a file that has them has many. The rest is
tried on single events that did not decode. In this order: bytes that are no UTF-8 become the replacement character;
bare words in lists become null; a backslash that starts no escape is doubled; a quote inside a string is escaped, where
a string is known to end at a quote that the next key or the closing bracket follows.
"""

import json
import re
from typing import Any

import msgspec

from sublight.trace.kineto import LooseEvent

_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_WORD = r"[-+]?(?:1?\.?#?(?:nan|inf(?:inity)?|ind)|n/a|none|undefined)(?=\s*[,}\]])"
_WORD_IN_LIST = re.compile(rf"([\[,]\s*){_WORD}", re.IGNORECASE)
# After a key, and a key begins with a letter: such text can not stand inside a string, where quotes are escaped.
_WORD_AS_VALUE = re.compile(rf'(?<!\\)("[A-Za-z][^"\\\n]{{0,80}}"\s*:\s*)({_WORD})'.encode(), re.IGNORECASE)
_KEY = r'"[A-Za-z_][^"\\\n:{}]{0,60}"\s*:'
# A value may hold `"},`, so a brace is believed at the end of the event first and anywhere only then.
_STRING_VALUES = [
    re.compile(rf'({_KEY}\s*)"(.*?)"(?=\s*(?:,\s*{_KEY}|{brace}))', re.DOTALL) for brace in (r"\}[\s}]*$", r",?\s*\}")
]
_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)"')
_KEYS = ("ph", "name", "pid", "tid", "ts", "dur", "args")
_MOST_BYTES = 1 << 20  # no event is this long; the patterns below are not for megabytes of hostile text


def without_bare_words(text: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The text with bare words for values made empty strings of the same length; where they stood, and their keys."""
    found: list[tuple[int, bytes]] = []

    def empty(match: re.Match[bytes]) -> bytes:
        found.append((match.start(2), match.group()))
        return match[1] + b'""'.ljust(len(match[2]))

    return _WORD_AS_VALUE.sub(empty, text), found


def mend(text: bytes, low: int, high: int) -> LooseEvent | None:
    """The event in this part of the text, if mending makes it one JSON object."""
    if high - low > _MOST_BYTES:
        return None
    readable = text[low:high].decode("utf-8", "replace")
    numbered = _WORD_IN_LIST.sub(r"\1null", readable)
    unescaped = _ESCAPE.sub(lambda m: m[0] if m[1] else "\\\\", numbered)
    tries = (readable, numbered, unescaped, *(_quotes_escaped(unescaped, pattern) for pattern in _STRING_VALUES))
    keys = {key for key in _KEYS if re.search(rf'"{key}"\s*:', readable)}
    return next((event for event in (_event(attempt, keys) for attempt in tries) if event is not None), None)


def _quotes_escaped(text: str, string_value: re.Pattern[str]) -> str:
    return string_value.sub(lambda m: f'{m[1]}"{_escaped(m[2])}"', text)


def _escaped(value: str) -> str:
    value = _QUOTE.sub(r'\1\\"', value)
    backslashes = len(value) - len(value.rstrip("\\"))
    return value + "\\" * (backslashes % 2)


def _event(text: str, keys: set[str]) -> LooseEvent | None:
    """By the standard library, which lets control characters, lone surrogates and NaN pass where msgspec does not.

    A key that stands in the text must come out as a key, and phase and category are words: mending a quote must not
    swallow half an event.
    """
    try:
        found: Any = json.loads(text, strict=False, parse_float=_Literal, parse_int=_Literal, parse_constant=_nothing)
        if not isinstance(found, dict) or not keys <= found.keys():
            return None
        if '"' in f"{found.get('ph')}{found.get('cat')}":
            return None
        event = LooseEvent()
        for field in ("ph", "cat", "name", "pid", "tid", "args"):
            if field in found:
                setattr(event, field, _plain(found[field]))
    except (ValueError, RecursionError):
        return None
    for field in ("ts", "dur"):
        value = found.get(field, _Literal("0"))
        setattr(event, field, msgspec.Raw(str(value).encode("utf-8", "replace")))
    return event


class _Literal(str):
    """A number as it stands in the text."""

    __slots__ = ()


def _nothing(_: str) -> None:
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, _Literal):
        try:
            return int(value)
        except ValueError:
            return float(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value
