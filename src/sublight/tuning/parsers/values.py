"""What the parsers share: numbers that may be missing, and text that terminals have decorated."""

import re
from collections.abc import Callable

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# How NVIDIA's tools say that there is no value; the words differ by tool and driver.
_NO_VALUE = re.compile(
    r"\[?(n/?a|not supported|unknown error|insufficient permissions|none"
    r"|requested functionality has been deprecated)\]?",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def plain(text: str) -> str:
    """The text without colours and underlines, with one kind of line end."""
    return _ESCAPES.sub("", text).replace("\r\n", "\n")


def has_value(text: str) -> bool:
    """Whether a field of NVIDIA's tools holds anything: "N/A", "[N/A]" and their like are no values."""
    return bool(text.strip()) and _NO_VALUE.fullmatch(text.strip()) is None


def number(text: str) -> float | None:
    """The number that a field starts with ("600.00 W", "16x", "97887 MiB"); None where there is none from zero up."""
    match = _NUMBER.match(text.strip())
    return float(match[0]) if match and has_value(text) else None


def kept(text: str, of_a_line: Callable[[str], str]) -> str:
    """What is kept of each line; where nothing is, an empty line stays, so that the others keep their numbers."""
    return "\n".join(of_a_line(line) for line in plain(text).splitlines()) + "\n"
