"""What is left of an answer before anybody looks at it: the lines that are read, and of messages what names nobody.

Outputs are cut by allow-list (each source says which lines and fields it reads), because nobody can list what a serial
number, a host's name or a password may look like. Only messages of programs that failed are free text; of those the
last line is kept, without what looks like an address, an assignment or a person's folder.
"""

import re

import msgspec

from sublight.hosts.base import Completed
from sublight.tuning.sources import SOURCES, Source

_LONGEST = 200  # characters of a message
_PATTERNS = (
    (re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE), "(removed)"),
    (re.compile(r"[^\s@]+@[^\s@]+"), "(removed)"),
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "(removed)"),
    (re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{0,4}:){3,}[0-9a-fA-F.:]*(?:%\w+)?"), "(removed)"),  # IPv6 and MAC addresses
    (re.compile(r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b(?!\.)"), "(removed)"),
    (re.compile(r"([\w.-]+)\s*=\s*\S+"), r"\1=(removed)"),
    (re.compile(r"(serial number|host ?name|host id|uuid|token|password)\b\W*\S+", re.IGNORECASE), r"\1 (removed)"),
    (re.compile(r"/(?:home|root|Users)\b\S*"), "(removed)"),
)  # fmt: skip


def clean(done: Completed) -> Completed:
    """The answer without whatever names one machine, one card or one person, and without secrets."""
    source = next((source for source in SOURCES.values() if source.argv == done.argv), None)
    return msgspec.structs.replace(
        done,
        stdout=_output(done, source).encode(),
        stderr=message(done.stderr.decode("utf-8", "replace")).encode(),
    )


def message(text: str) -> str:
    """The last line of what a program says of itself, without names and addresses; "" where it is no text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if not last.isprintable() or "\N{REPLACEMENT CHARACTER}" in last:
        return ""
    for pattern, instead in _PATTERNS:
        last = pattern.sub(instead, last)
    return last[:_LONGEST]


def _output(done: Completed, source: Source | None) -> str:
    if source is None or not (done.ok or source.partly) or (source.talks and not source.looks_like(done.text)):
        return message(done.text)
    return source.keep(done.text)
