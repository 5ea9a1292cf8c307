"""What the lines of a log mean. The rules are data, one file an engine; the first that matches a message decides.

`vllm.toml` and `sglang.toml` hold lines that only that engine prints; `both.toml` lines that both print, because they
share code, or that come from a library below them. A file's `engine` says which log it is; a rule says

    match     a regular expression for the message from its beginning, without prefixes; its named groups are fields
    fact      what the line is about (`FactKind`), and `set`, fields that the line says without words
    telling   no other program prints this line: it decides which engine the log is of
    more      rules behind this one read the line as well: it says two things
    example   messages it must match, before any other rule does, and `seen`, where they are from

A line that no rule matches says nothing. No rule is made for a line that was not seen in a log or in released source.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from sublight.audit.log.record import FIELDS, FactKind
from sublight.errors import InputFileError

_FOLDER = Path(__file__).parent
_HINT = "the form of the files in sublight/audit/log/rules"
_LITERAL = re.compile(r"[A-Za-z0-9 _:=,'-]+(?![?*+{])")
_GROUP = re.compile(r"\(\?P<\w+>")
_KEY = 4


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rule of a file; its id is put behind the name of the file when it is read: "vllm.moe-backend"."""

    id: str
    fact: FactKind
    match: str
    fields: dict[str, str] = msgspec.field(default_factory=dict, name="set")
    telling: bool = False
    more: bool = False
    example: tuple[str, ...]
    seen: str
    engine: str = ""

    def __post_init__(self) -> None:
        try:
            groups = set(re.compile(self.match).groupindex)
        except re.error as error:
            raise ValueError(f"rule {self.id!r}: {self.match!r}: {error}") from None
        must, may = FIELDS[self.fact]
        given = groups | set(self.fields)
        if must - given or given - must - may or groups & set(self.fields):
            raise ValueError(f"rule {self.id!r}: a {self.fact} has {sorted(must)}, may have {sorted(may)}: {given}")
        if not self.example or not self.seen:
            raise ValueError(f"rule {self.id!r} needs an example, and where it was seen")


class Reading(msgspec.Struct, frozen=True):
    """What a rule made of a message."""

    rule: Rule
    fields: dict[str, str]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    rule: tuple[Rule, ...]
    engine: str = ""


class Rules:
    """Rules in order, looked up by the first characters of a message: most lines of a log match none."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._tests = [re.compile(rule.match) for rule in self.rules]
        self._always = tuple(n for n, rule in enumerate(self.rules) if not _key(rule.match))
        self._by_key: dict[str, tuple[int, ...]] = {}
        for number, rule in enumerate(self.rules):
            key = _key(rule.match)
            if key:
                self._by_key[key] = (*self._by_key.get(key, ()), number)
        self._by_key = {key: tuple(sorted((*own, *self._always))) for key, own in self._by_key.items()}
        # One expression for all rules without a key, which most lines fail at once.
        self._gate = re.compile("|".join(_GROUP.sub("(?:", self.rules[n].match) for n in self._always) or "(?!)")

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def read(self, message: str) -> list[Reading]:
        """The first rule that matches, and its fields; nothing for a line that says nothing we know."""
        readings: list[Reading] = []
        numbers = self._by_key.get(message[:_KEY])
        if numbers is None:
            if self._gate.match(message) is None:
                return readings
            numbers = self._always
        for number in numbers:
            match = self._tests[number].match(message)
            if match is not None:
                rule = self.rules[number]
                found = {name: text.strip() for name, text in match.groupdict().items() if text and text.strip()}
                if FIELDS[rule.fact][0] <= rule.fields.keys() | found.keys():
                    readings.append(Reading(rule, rule.fields | found))
                    if not rule.more:
                        break
        return readings


@cache
def built_in() -> Rules:
    """The rules of this package, vLLM's and SGLang's own before those that both print."""
    return Rules(rule for name in ("vllm", "sglang", "both") for rule in read_rules(_FOLDER / f"{name}.toml"))


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of one file, each tried on its own examples after all rules before it. Raises InputFileError."""
    asked = f"reading {path} as rules for logs"
    try:
        file = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise InputFileError(asked, error.strerror or str(error), _HINT) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputFileError(asked, str(error), _HINT) from None
    rules = [msgspec.structs.replace(rule, id=f"{path.stem}.{rule.id}", engine=file.engine) for rule in file.rule]
    if len({rule.id for rule in rules}) < len(rules):
        raise InputFileError(asked, "two rules have one id", _HINT)
    together = Rules(rules)
    for rule in rules:
        for message in rule.example:
            readings = together.read(message)
            if not readings or readings[0].rule is not rule:
                by = f"rule {readings[0].rule.id!r}" if readings else "no rule"
                raise InputFileError(asked, f"the example {message!r} of {rule.id!r} is read by {by}", _HINT)
    return tuple(rules)


def _key(pattern: str) -> str:
    """The first characters every message of this rule has; empty if they vary."""
    literal = _LITERAL.match(pattern)
    choice = "|" in pattern.split("(", 1)[0]
    return literal[0][:_KEY] if literal and not choice and len(literal[0]) >= _KEY else ""
