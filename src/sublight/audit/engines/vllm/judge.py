"""Candidates of a choice in vLLM: each kernel class is asked whether it takes a configuration, and says why not.

The choice itself is walked with the answers put in, one at a time, so that a class that cannot be told does not blur
the others. The line that refuses is the class's own `_supports_...` method, where it has one.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from weakref import WeakKeyDictionary

import msgspec

from sublight.audit.engines.base import Gate
from sublight.audit.engines.vllm.walk import FOLLOWED, Walk
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source import objects
from sublight.audit.source.cards import CAPABILITIES, Capability
from sublight.audit.source.evaluate import Outcome
from sublight.audit.source.events import Event
from sublight.audit.source.tree import Module
from sublight.audit.source.values import Bound, Class, Function, Template, Unknown, Value, options

LISTS = frozenset(("validate_configuration",))  # methods that answer with a list of objections
DEVICE = "_supports_current_device"
_ASKS = re.compile(r"\.(_?supports_\w+|_?can_\w+|is_\w*supported\w*|activation_format)$")


class Verdict(msgspec.Struct, frozen=True):
    """What one candidate says.

    Attributes:
        cls: the class.
        passes: None when it depends on something that is not known.
        reason: its own words, or what it depends on.
        proofs: the method that decided, and the line that asked it.
        asked: arguments it was asked with.
        symbols: what it asked the installation for.
        lacking: what of that is not there, and why.
    """

    cls: Class
    passes: bool | None
    reason: str
    proofs: tuple[Proof, ...]
    asked: tuple[list[Value], dict[str, Value]]
    symbols: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.cls.qualified


class Judge:
    """Stands in for the method a choice asks its candidates by.

    Args:
        unknown: what a candidate that cannot be told is taken to say.
        words: what stands in its reasons for names of the engine's, which only a running one could spell out.
    """

    def __init__(self, walk: Walk, method: str, unknown: bool, words: Mapping[str, str] | None = None) -> None:
        self.words = words or {}
        self.walk = walk
        self.method = method
        self.unknown = unknown
        self.verdicts: list[Verdict] = []

    def __call__(self, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """Bound class methods bring their class first, as plain calls of static ones do."""
        cls = next((item for item in arguments if isinstance(item, Class)), None)
        if cls is None:
            return False, "it is not known who is asked"
        verdict = judge(self.walk, cls, self.method, arguments, keywords)
        for name, word in self.words.items():
            verdict = msgspec.structs.replace(verdict, reason=verdict.reason.replace(name, word))
        if not any(seen.cls is cls and seen.passes is verdict.passes for seen in self.verdicts):
            self.verdicts.append(verdict)
        passes = self.unknown if verdict.passes is None else verdict.passes
        return passes, None if passes else verdict.reason


def judge(walk: Walk, cls: Class, method: str, arguments: list[Value], keywords: dict[str, Value]) -> Verdict:
    """Asks one class, with nothing put in."""
    kept = walk.calls.pop(method, None)
    walk.asked.clear()
    walk.evaluator.kept.clear()  # so that answers it has kept are asked for again
    earlier, walk.missing = walk.missing, {}
    try:
        _, found = objects.find(walk.evaluator, cls, method)
        outcome = walk.evaluator.run(found.function if isinstance(found, Bound) else found, arguments, keywords)
    finally:
        if kept is not None:
            walk.calls[method] = kept
        lacking, walk.missing = walk.missing, earlier | walk.missing
    walk.place(outcome.events)
    passes, reason = _objections(outcome, method) if method in LISTS else _answer(outcome)
    if passes is None:
        reason = reason or f"depends on {_doubt(outcome)}{_unread(walk, outcome)}"
    proofs = _proofs(walk, outcome, method) if passes is not True else _device(walk, cls)
    symbols = tuple(dict.fromkeys(walk.asked))
    return Verdict(cls, passes, reason, proofs, (arguments, keywords), symbols, tuple(lacking.values()))


def essential(walk: Walk, verdict: Verdict, method: str, symbol: str) -> bool:
    """Whether a candidate minds when a symbol is not there: it may have another way."""
    kept = dict(walk.missing)
    walk.deny(symbol)
    try:
        return (
            judge(walk, verdict.cls, method, list(verdict.asked[0]), dict(verdict.asked[1])).passes
            is not verdict.passes
        )
    finally:
        walk.deny("")
        walk.missing = kept


def _answer(outcome: Outcome) -> tuple[bool | None, str]:
    if outcome.refusal is not None:
        return False, outcome.refusal.message or outcome.refusal.kind
    if outcome.gave_up:
        return None, outcome.gave_up
    found: set[bool | None] = set()
    reasons: list[str] = []
    for option in options(outcome.value):
        passes = option[0] if isinstance(option, tuple) and option else option
        found.add(passes if isinstance(passes, bool) else None)
        if isinstance(option, tuple) and len(option) > 1 and passes is False:
            reasons.append(text(option[1]))
    if len(found) != 1:
        return None, ""
    passes = found.pop()
    return passes, reasons[0] if reasons and passes is False else ""


def _objections(outcome: Outcome, method: str) -> tuple[bool | None, str]:
    """A method that collects objections: each test of its own that certainly holds is one."""
    if outcome.refusal is not None or outcome.gave_up:
        return _answer(outcome)
    own = [e for e in outcome.events if e.kind == "branch" and e.function.endswith(f".{method}")]
    known = min((len(event.conditions) for event in own), default=0)
    certain = [event for event in own if event.outcome is True and len(event.conditions) == known]
    if certain:
        return False, ", ".join(dict.fromkeys(_objected(certain, outcome.value)))
    if isinstance(outcome.value, list) and not outcome.value:
        return True, ""
    return None, ""


def _objected(certain: list[Event], made: Value) -> Iterator[str]:
    """The objections in words: as they stand in the source, else as the list that was made holds them."""
    literal = [_appended(event) for event in certain]
    worded = [text(said) for said in made if isinstance(said, str | Template)] if isinstance(made, list) else []
    others = iter([said for said in worded if said not in literal])
    for event, said in zip(certain, literal, strict=True):
        yield said or next(others, f"{event.text} ({event.where})")


def _appended(event: Event) -> str:
    """What the block behind a test adds to a list, "" where that is no plain text."""
    if event.module not in _texts:
        _texts[event.module] = {
            _place(node.test): _first_text(node.body)
            for node in ast.walk(event.module.tree)
            if isinstance(node, ast.If)
        }
    return _texts[event.module].get(_place(event.node), "")


_texts: "WeakKeyDictionary[Module, dict[tuple[int, int], str]]" = WeakKeyDictionary()


def _place(node: ast.AST) -> tuple[int, int]:
    """Line and column: of one and the same text there may be several trees."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _first_text(body: list[ast.stmt]) -> str:
    found = (item.value for node in body for item in ast.walk(node) if isinstance(item, ast.Constant))
    return next((value for value in found if isinstance(value, str)), "")


def text(value: Value) -> str:
    """A message as far as it is known."""
    return (
        value
        if isinstance(value, str)
        else value.text
        if isinstance(value, Template)
        else ""
        if value is None
        else str(value)
    )


def _unread(walk: Walk, outcome: Outcome) -> str:
    """A package whose values are compared on the way and whose source is not here, as far as there is one."""
    imported = {event.name.partition(".")[0] for event in outcome.events if event.kind == "import"}
    asked = imported | {symbol.partition(".")[0] for symbol in walk.asked}
    absent = [name for name in FOLLOWED if name in asked and name not in walk.sources.roots]
    return f", which the source of {absent[0]} decides; that is not here" if absent else ""


_OPERATORS = "torch.ops."


def _doubt(outcome: Outcome) -> str:
    """What an answer depends on: the value itself where it is one unknown, else the first test walked on both sides."""
    value = outcome.value[0] if isinstance(outcome.value, tuple) and outcome.value else outcome.value
    before = takewhile(lambda event: event.kind != "branch" or event.outcome is not None, outcome.events)
    compiled = next((event for event in before if event.kind == "call" and event.name.startswith(_OPERATORS)), None)
    if compiled is not None:
        return f"the answer of the compiled {compiled.name} ({compiled.where}), which only a call on the card tells"
    at = next((event.where for event in reversed(outcome.events) if event.kind == "branch"), "")
    if isinstance(value, Unknown) and " " in value.why and at:
        return f"{value.why} ({at})"
    unsure = next((event for event in outcome.events if event.kind == "branch" and event.outcome is None), None)
    if unsure is None:
        unsure = next((event for event in outcome.events if event.conditions), None)
        return (
            f"{unsure.conditions[0].text} ({unsure.conditions[0].where})" if unsure else "something that is not known"
        )
    return f"{unsure.text} ({unsure.where})"


def _proofs(walk: Walk, outcome: Outcome, method: str) -> tuple[Proof, ...]:
    """The method that decided, and the line that asked it."""
    deciding: Event | None = None
    for event in outcome.events:
        if event.kind == "branch" and event.outcome is not False and event.function.endswith(f".{method}"):
            deciding = event
            break
    last = next(
        (
            event
            for event in reversed(outcome.events)
            if event.kind == "call"
            and _ASKS.search(event.name)
            and (deciding is None or (event.line in _lines(deciding) and event.module is deciding.module))
        ),
        None,
    )
    found = []
    if last is not None and (function := walk.function(last.name)) is not None:
        found.append(Proof("source", function.where, returned(function)))
    if deciding is not None:
        found.append(Proof("source", deciding.where, deciding.text))
    elif not found and outcome.refused_at is not None:
        found.append(Proof("source", outcome.refused_at.where, outcome.refused_at.text))
    if not found and outcome.events:
        function = walk.function(outcome.events[0].function) if outcome.events[0].function else None
        found += [Proof("source", function.where, returned(function))] if function else []
    return tuple(found)


def _lines(event: Event) -> range:
    start = event.line
    return range(start, (getattr(event.node, "end_lineno", start) or start) + 1)


def returned(function: Function) -> str:
    """The expression a small function returns, else its first line."""
    for node in reversed(getattr(function.node, "body", [])) if isinstance(function.node.body, list) else ():
        if isinstance(node, ast.Return) and node.value is not None:
            said = node.value.elts[-1] if isinstance(node.value, ast.Tuple) and node.value.elts else node.value
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                return said.value  # of an answer with its reason, the reason
            return " ".join(ast.unparse(node.value).split())[:200]
    return function.module.module.line(function.node.lineno)


def _device(walk: Walk, cls: Class) -> tuple[Proof, ...]:
    """The line by which a class takes the card."""
    for name in (DEVICE, "is_supported"):
        _, found = objects.find(walk.evaluator, cls, name)
        function = found.function if isinstance(found, Bound) else found
        if isinstance(function, Function):
            return (Proof("source", function.where, returned(function)),)
    return (Proof("source", cls.where, f"class {cls.qualified}"),)


def gates(walk: Walk, verdict: Verdict, method: str, here: Capability, device: str = DEVICE) -> tuple[Gate, ...]:
    """Which cards a candidate takes: by its question for the device, and, where that differs, by all it asks."""
    found: list[Gate] = []
    _, raw = objects.find(walk.evaluator, verdict.cls, device) if device else (None, None)
    function = raw.function if isinstance(raw, Bound) else raw
    by_device: dict[Capability, bool | None] = {}
    if isinstance(function, Function):
        given: list[Value] = [verdict.cls] if function.kind == "class" else []

        def alone() -> bool | None:
            return _answer(walk.evaluator.run(function, list(given), {}))[0]

        by_device = by_card(walk, here, alone)
        found.append(gate(by_device, here, returned(function), function.where))

    def whole() -> bool | None:
        return judge(walk, verdict.cls, method, list(verdict.asked[0]), dict(verdict.asked[1])).passes

    by_all = by_card(walk, here, whole)
    stricter = [c for c, passes in by_all.items() if passes is False and by_device.get(c, True) is not False]
    if stricter and any(passes is not False for passes in by_all.values()):
        asked = verdict
        if by_all[here] is not None:
            walk.look(stricter[0])
            asked = judge(walk, verdict.cls, method, list(verdict.asked[0]), dict(verdict.asked[1]))
            walk.look(here)
        proof = next(iter(asked.proofs), Proof("source", verdict.cls.where, verdict.name))
        text = f"{verdict.name} {verdict.reason}" if by_all[here] is None and verdict.reason else proof.text
        found.append(gate(by_all, here, text, proof.where))
    return tuple(sorted(found, key=lambda item: len(item.targets)))


def by_card(walk: Walk, here: Capability, ask: Callable[[], bool | None]) -> dict[Capability, bool | None]:
    """What each card is answered where everything is installed."""
    answers: dict[Capability, bool | None] = {}
    kept, walk.generous = dict(walk.missing), True
    try:
        for card in dict.fromkeys((*CAPABILITIES, here)):
            walk.look(card)
            answers[card] = ask()
    finally:
        walk.generous = False
        walk.missing = kept
        walk.look(here)
    return answers


def gate(answers: dict[Capability, bool | None], here: Capability, condition: str, where: str) -> Gate:
    answer = {True: Answer.PASS, False: Answer.FAIL, None: Answer.NOT_KNOWN}[answers[here]]
    targets = tuple(f"{major}.{minor}" for (major, minor), passes in sorted(answers.items()) if passes is not False)
    return Gate(answer, condition, Proof("source", where, condition), targets)
