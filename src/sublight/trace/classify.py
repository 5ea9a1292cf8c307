"""What a kernel is, from its name. The rules are data; the first that matches decides; what none knows is unknown.

`rules/` has one file a library or engine, read in the order of the numbers that their names begin with: the driver,
collectives, attention, GEMM libraries, engines, linear attention, torch.compile, and PyTorch last, because the general
names come last. Rules of the user's own files come before those of installed packages (entry-point group
`sublight.trace_rules`, each entry the path of a file), and both before the built-in ones. A rule says

    match       how it knows the name, see `Match`
    kind        the work (gemm, attention, all-reduce, ...) and
    category    whether it computes, communicates or only moves memory, which has to fit the kind
    row         the row of the step, when the name alone decides; most GEMMs serve several rows and leave it out
    backend     whose kernel it is
    example     names as traces have them, which it must match, and `seen`, where they are from

A C++ name mentions other functions among its arguments, so a rule looks at the function's own name unless it asks for
the whole. An own name keeps its namespaces: they tell vLLM's act_and_mul_kernel from SGLang's.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from sublight.errors import InputFileError
from sublight.registry import Registry
from sublight.rows import ROWS

ENTRY_POINTS = "sublight.trace_rules"
_FOLDER = Path(__file__).parent / "rules"
_HINT = "the form of the files in sublight/trace/rules, which the head of sublight/trace/classify.py describes"


class Category(StrEnum):
    COMPUTE = "compute"
    COMMUNICATION = "communication"
    MEMORY = "memory"  # moves or fills bytes and computes nothing
    UNKNOWN = "unknown"


class Kind(StrEnum):
    GEMM = "gemm"
    MOE_GEMM = "moe-gemm"
    ATTENTION = "attention"
    INDEXER = "indexer"  # chooses the positions that sparse attention reads
    STATE = "state"  # of linear attention and Mamba
    NORM = "norm"
    ACTIVATION = "activation"
    ELEMENTWISE = "elementwise"
    QUANTISE = "quantise"
    ROPE = "rope"
    KV_WRITE = "kv-write"
    KV_READ = "kv-read"
    ROUTING = "routing"  # top-k of the router, sort by expert, sum over the experts of a token
    SAMPLING = "sampling"
    SOFTMAX = "softmax"
    REDUCE = "reduce"
    SORT = "sort"
    INDEX = "index"  # gathers or scatters rows by number, such as the embedding
    BOOKKEEPING = "bookkeeping"  # positions, slots and lengths of a step
    WEIGHTS = "weights"  # weights made ready, when they are loaded
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    SEND = "send"
    COLLECTIVE = "collective"  # the name does not say which
    COPY = "copy"
    SET = "set"
    UNKNOWN = "unknown"

    @property
    def category(self) -> Category:
        if self is Kind.UNKNOWN:
            return Category.UNKNOWN
        if self in (Kind.COPY, Kind.SET):
            return Category.MEMORY
        return Category.COMMUNICATION if self in _COMMUNICATION else Category.COMPUTE


_COMMUNICATION = {
    Kind.ALL_REDUCE,
    Kind.ALL_GATHER,
    Kind.REDUCE_SCATTER,
    Kind.ALL_TO_ALL,
    Kind.BROADCAST,
    Kind.SEND,
    Kind.COLLECTIVE,
}
Words = str | tuple[str, ...]


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the texts under exact, prefix or contains, or the regex, has to fit; then also one of `also`, if given.

    Attributes:
        exact: the own name, or its end from a namespace on: "marlin::Marlin" fits "device::marlin::Marlin".
        prefix: the own name begins so, or from a namespace on.
        contains: anywhere in the own name.
        regex: from the beginning of the own name.
        also: anywhere in the whole name; written without namespaces, so that it is found in a mangled name too.
        where: "whole" matches all of the above against the whole name, without the leave to begin at a namespace.
    """

    exact: Words = ()
    prefix: Words = ()
    contains: Words = ()
    regex: str = ""
    also: Words = ()
    where: Literal["name", "whole"] = msgspec.field(default="name", name="in")

    def __post_init__(self) -> None:
        texts = [*_words(self.exact), *_words(self.prefix), *_words(self.contains)]
        if not texts and not self.regex:
            raise ValueError("a match needs a text under exact, prefix, contains or regex")
        for text in (*texts, *_words(self.also)):
            if len(text) < _KEY:
                raise ValueError(f"{text!r} is too short: {_KEY} characters at least")
        try:
            re.compile(self.regex)
        except re.error as error:
            raise ValueError(f"regex {self.regex!r}: {error}") from None


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rule of a file; its id is put behind the name of the file when it is read: "weight-only.marlin"."""

    id: str
    match: Match
    kind: Kind
    category: Category
    row: str = ""
    backend: str
    example: tuple[str, ...]
    seen: str
    note: str = ""

    def __post_init__(self) -> None:
        if self.kind is Kind.UNKNOWN:
            raise ValueError(f"rule {self.id!r}: what no rule matches is unknown, a rule can not say it")
        if self.category is not self.kind.category:
            raise ValueError(f"rule {self.id!r}: kind {self.kind} is {self.kind.category}, not {self.category}")
        if self.row and self.row not in ROWS:
            raise ValueError(f"rule {self.id!r}: there is no row {self.row!r}")
        if not self.example:
            raise ValueError(f"rule {self.id!r} has no example")


class Classification(msgspec.Struct, frozen=True):
    """What a name says. `row` is empty where it does not say; `rule` is empty, and nothing else known, if unknown."""

    kind: Kind = Kind.UNKNOWN
    category: Category = Category.UNKNOWN
    row: str = ""
    backend: str = ""
    rule: str = ""


UNKNOWN = Classification()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    rule: tuple[Rule, ...]


class Rules:
    """Rules in order, and every name they were asked for.

    Comparing each name with every text of every rule would take longer than reading the trace, so rules are looked up
    by the first characters of their texts, at the places of the own name where a text may begin.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._tests = [_test(rule.match) for rule in self.rules]
        self._answers = [Classification(r.kind, r.category, r.row, r.backend, r.id) for r in self.rules]
        self._by_name: dict[str, list[int]] = {}
        self._by_whole: dict[str, list[int]] = {}
        self._always: list[int] = []
        for number, rule in enumerate(self.rules):
            keys = _keys(rule.match)
            table = self._by_name if rule.match.where == "name" else self._by_whole
            for key in keys:
                table.setdefault(key, []).append(number)
            if not keys:
                self._always.append(number)
        self._seen: dict[str, Classification] = {}

    @classmethod
    def load(cls, *paths: Path) -> "Rules":
        """The built-in rules after those of installed packages and of `paths`, the first path first.

        Raises:
            InputFileError: a file that can not be read or is no rules file; the sentence says where it goes wrong.
        """
        files = [*paths, *_installed(), *sorted(_FOLDER.glob("*.toml"))]
        return cls(rule for path in files for rule in read_rules(path))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def classify(self, name: str) -> Classification:
        """The answer of the first rule that matches, or UNKNOWN. Never raises."""
        answer = self._seen.get(name)
        if answer is None:
            answer = self._seen[name] = self._first(name)
        return answer

    def _first(self, name: str) -> Classification:
        own = "::" + own_name(name)
        numbers: list[int] = [*self._always, *self._by_whole.get(name[:_KEY], ())]
        place = 0
        while place >= 0:
            numbers += self._by_name.get(own[place + 2 : place + 2 + _KEY], ())
            place = own.find("::", place + 2)
        numbers.sort()
        for number in numbers:
            if self._tests[number](own, name):
                return self._answers[number]
        return UNKNOWN


def classify(name: str) -> Classification:
    """What a kernel is, by the built-in rules and those of installed packages."""
    return _default().classify(name)


@cache
def _default() -> Rules:
    return Rules.load()


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of one file, each tried on its own examples. Raises InputFileError."""
    asked = f"reading {path} as trace rules"
    try:
        file = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise InputFileError(asked, error.strerror or str(error), _HINT) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputFileError(asked, str(error), _HINT) from None
    short = re.sub(r"^\d+-", "", path.stem)
    ids: set[str] = set()
    for rule in file.rule:
        if rule.id in ids:
            raise InputFileError(asked, f"two rules have the id {rule.id!r}", _HINT)
        ids.add(rule.id)
        test = _test(rule.match)
        for name in rule.example:
            if not test("::" + own_name(name), name):
                raise InputFileError(asked, f"rule {rule.id!r} does not match its own example {name!r}", _HINT)
    return tuple(msgspec.structs.replace(rule, id=f"{short}.{rule.id}") for rule in file.rule)


def _installed() -> list[Path]:
    """The files that installed packages bring."""
    registry = Registry("trace rules file", ENTRY_POINTS, {})
    paths = []
    for name in registry.names():
        try:
            paths.append(Path(os.fspath(registry.load(name))))
        except Exception as error:  # a foreign module may fail in any way when it is imported
            raise InputFileError(
                f"finding the trace rules that the installed package {name!r} brings",
                str(error) or type(error).__name__,
                f"removing that package, or an entry under {ENTRY_POINTS} that is the path of a file",
            ) from error
    return paths


def own_name(name: str) -> str:
    """The function's name with its namespaces: no return type, no template arguments, no parameters.

        void (anonymous namespace)::act_and_mul_kernel<__nv_bfloat16, ...>(...)   act_and_mul_kernel
        std::enable_if<!(false), void>::type internal::gemvx::kernel<int, ...>    internal::gemvx::kernel
        _ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalI...             cutlass::device_kernel

    A name that was cut short in the middle of its arguments gives what stands before them.
    """
    if name.startswith("_Z") and (mangled := _mangled_name(name)):
        return mangled
    text = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    kept = []
    place = 0
    while bracket := _BRACKET.search(text, place):
        start = bracket.start()
        kept.append(text[place:start])
        if text.endswith("operator", 0, start):  # operator() and operator<
            place = start + (2 if text.startswith("()", start) else 1)
            kept.append(text[start:place])
        elif text[start] == "<" and (arguments := _ARGUMENTS.match(text, start)):
            place = arguments.end()
        else:
            break
    else:
        kept.append(text[place:])
    words = "".join(kept).split()
    return words[-1] if words else ""


def _mangled_name(name: str) -> str:
    """The same of a name that the profiler did not demangle, which happens to the longest; empty if it has none."""
    parts = []
    place = 3 if name.startswith("_ZN") else 2
    while length := _LENGTH.match(name, place):
        place = length.end() + int(length[0])
        parts.append(name[length.end() : place])
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N"))


def _nested(levels: int, parentheses: int) -> str:
    """A regex for <...> with as much inside. A > in parentheses compares; nothing gives back, so it is linear."""
    inner = r"\([^()]*+\)"
    for _ in range(parentheses):
        inner = rf"\((?:[^()]++|{inner})*+\)"
    pattern = rf"<(?:[^<>()]++|{inner})*+>"
    for _ in range(levels):
        pattern = rf"<(?:[^<>()]++|{inner}|{pattern})*+>"
    return pattern


_BRACKET = re.compile("[<(]")
_LENGTH = re.compile(r"[1-9]\d{0,3}")
_ARGUMENTS = re.compile(_nested(levels=20, parentheses=5))
_LITERAL = re.compile(r"[A-Za-z0-9_:]+(?![A-Za-z0-9_:?*+{])")
_KEY = 3


def _words(words: Words) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else words


def _keys(match: Match) -> set[str]:
    """The first characters of a name that may match; empty if any may."""
    if match.contains:
        return set()
    keys = {text[:_KEY] for text in (*_words(match.exact), *_words(match.prefix))}
    if match.regex:
        literal = _LITERAL.match(match.regex)
        if literal is None or len(literal[0]) < _KEY or "|" in match.regex.split("(", 1)[0]:
            return set()
        keys.add(literal[0][:_KEY])
    return keys


def _test(match: Match) -> Callable[[str, str], bool]:
    """A function of the own name behind "::" and the whole name."""
    exact, prefix, contains, also = (_words(w) for w in (match.exact, match.prefix, match.contains, match.also))
    regex = re.compile(match.regex) if match.regex else None
    whole = match.where == "whole"
    wholes = exact if whole else tuple("::" + text for text in exact)
    starts = prefix if whole else tuple("::" + text for text in prefix)

    def fits(own: str, name: str) -> bool:
        if whole:
            found = name in wholes or name.startswith(starts)
        else:
            found = own.endswith(wholes) or any(text in own for text in starts)
        text, begin = (name, 0) if whole else (own, 2)
        found = found or any(part in text for part in contains)
        found = found or (regex is not None and regex.match(text, begin) is not None)
        return found and (not also or any(part in name for part in also))

    return fits
