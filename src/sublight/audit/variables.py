"""Variables that are set for an engine and not read by this version: what took their place, or what was meant."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from sublight.audit.ladder import Proof
from sublight.audit.record import AuditFinding

_TABLE = Path(__file__).with_name("variables.toml")
_SHORT = 5  # letters: in a word of fewer, another letter makes another word, as TP and EP


class Replaced(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What took a variable's place: the option, and the name of the setting behind it."""

    flag: str
    setting: str

    @property
    def advice(self) -> str:
        return f"unset it and set {self.flag}"


@cache
def replaced() -> dict[str, Replaced]:
    """Variables that an engine once read -> what took their place."""
    return msgspec.toml.decode(_TABLE.read_bytes(), type=dict[str, Replaced])


def of_variables(
    engine: str, prefixes: Iterable[str], known: frozenset[str] | None, environment: dict[str, str]
) -> Iterator[AuditFinding]:
    """Variables that are set for an engine and that this version does not read.

    Those that begin as a library is called are that library's to read, and are not judged by the engine's list.
    """
    if known is None:
        return
    own = tuple(prefix for prefix in prefixes if engine.upper().startswith(prefix.rstrip("_")))
    for name in sorted(environment):
        if name.startswith(own) and not _is_read(name, own, known):
            instead = replaced().get(name)
            yield AuditFinding(
                level="warn",
                subject=name,
                text=f"it is set, and nothing in this version of {engine} reads it: it has no effect",
                proofs=(Proof("command", "environment", f"{name}={environment[name]}"),),
                hint=instead.advice if instead else " or ".join(meant(name, known)) or _NOTHING_LIKE_IT,
            )


_NOTHING_LIKE_IT = "unset it, or look for an option in its place: no variable that is read is spelt almost like it"


def _is_read(name: str, own: tuple[str, ...], known: frozenset[str]) -> bool:
    """By its name, by a beginning that is read with whatever follows, or by the engine's newer spelling of its own."""
    rest = next(name.removeprefix(prefix) for prefix in own if name.startswith(prefix))
    begun = any(name.startswith(other) for other in known if other.endswith("_") and other not in own)
    return begun or any(f"{prefix}{rest}" in known for prefix in own)


def meant(name: str, known: Iterable[str]) -> list[str]:
    """Names that are read and of which this one is a misspelling: at most two, and none that is only about alike.

    Variables of one engine share most of their words, and the word that differs says what they are for.
    """
    words, joined = name.split("_"), name.replace("_", "")
    found = []
    for other in known:
        others = other.split("_")
        pairs = list(zip(words, others, strict=False)) if len(words) == len(others) else []
        if joined == other.replace("_", "") or (pairs and all(a == b or _slip(a, b) for a, b in pairs)):
            found.append((sum(a != b for a, b in pairs), other))
    return [other for _, other in sorted(found)[:2] if other != name]


def _slip(word: str, other: str) -> bool:
    """Whether one letter too many, too few or wrong, or two that changed places, make one word of the other."""
    if [c for c in word if c.isdigit()] != [c for c in other if c.isdigit()]:
        return False
    long = max(len(word), len(other)) >= _SHORT
    while word and other and word[0] == other[0]:
        word, other = word[1:], other[1:]
    while word and other and word[-1] == other[-1]:
        word, other = word[:-1], other[:-1]
    if len(word) == len(other) == 1:
        return long
    return sorted((len(word), len(other))) == [0, 1] or (len(word) == 2 and word == other[::-1])
