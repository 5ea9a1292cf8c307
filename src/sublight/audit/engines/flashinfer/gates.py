"""Capability gates of a FlashInfer symbol: what its decorators claim, and what the code behind it asks.

A decorator that lists capabilities (`supported_compute_capability`) is metadata and refuses nobody; one that lists
backends (`backend_requirement`) refuses. The kernel's own gate may be an assert in a constructor far behind a wrapper
that lets more cards through, and is gone under `python -O`. All of them are given, the narrowest first.
"""

import ast
from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

import msgspec

from sublight.audit.engines.base import Gate
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source import outline
from sublight.audit.source.arithmetic import Asked
from sublight.audit.source.cards import CAPABILITIES, Capability, Question, constant, questions
from sublight.audit.source.outline import bindings
from sublight.audit.source.symbols import resolve
from sublight.audit.source.tree import Module, Sources

CLAIM = "supported_compute_capability"
REQUIREMENT = "backend_requirement"
_SUPPORTED = "supported"  # a class's own question, asked with an architecture as a number
_KINDS = {
    "assert": "assert {} (left out by python -O)",
    "raise": "{}",
    "flags": "the just-in-time build is made for {}",
}

Asking = tuple[Question, tuple[Capability, ...], tuple[Capability, ...]]
_asked: "WeakKeyDictionary[Module, dict[tuple[str, Capability | None], list[Asking]]]" = WeakKeyDictionary()


class Definition(msgspec.Struct, frozen=True):
    """A function or class with its body."""

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definition(sources: Sources, symbol: str) -> Definition | None:
    """What a symbol is defined as; None for what is not found, or is no function or class."""
    found = resolve(sources, symbol)
    module = sources.module(found.home.rpartition(".")[0]) if found.found else None
    node = outline.definition(module, found.home.rpartition(".")[2]) if module is not None else None
    return Definition(module, node) if module is not None and node is not None else None


def _decorators(found: Definition) -> Iterator[ast.Call]:
    """Calls that decorate a function, or the constructor and calls of a class."""
    nodes: list[ast.AST] = [found.node]
    if isinstance(found.node, ast.ClassDef):
        nodes += [item for item in found.node.body if getattr(item, "name", "") in ("__init__", "run", "__call__")]
    for node in nodes:
        for decorator in getattr(node, "decorator_list", ()):
            if isinstance(decorator, ast.Call):
                yield decorator


def _named(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _claims(sources: Sources, found: Definition, here: Capability) -> Iterator[Gate]:
    for call in _decorators(found):
        if _named(call) != CLAIM or not call.args:
            continue
        value = constant(sources, found.module, call.args[0])
        where = found.module.at(call)
        text = f"@{CLAIM}({ast.unparse(call.args[0])})"
        if isinstance(value, Asked) and isinstance(value.value, list | tuple | set):
            cards = sorted({(number // 10, number % 10) for number in value.value if isinstance(number, int)})
            answer = Answer.PASS if here in cards else Answer.FAIL
            yield Gate(
                answer, f"{text}: a claim that refuses nobody", Proof("source", where, text), _shown(cards), True
            )
        else:
            yield Gate(Answer.NOT_KNOWN, text, Proof("source", where, text), claim=True)


def requirements(found: Definition) -> dict[str, str]:
    """Backends of a `backend_requirement`: name -> dotted checker; "" is the check common to all of them."""
    checkers: dict[str, str] = {}
    for call in _decorators(found):
        if _named(call) != REQUIREMENT:
            continue
        table = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "backend_checks"), None)
        if isinstance(table, ast.Name):
            table = next((b.value for b in bindings(found.module).get(table.id, ()) if b.value is not None), None)
        for key, value in zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                checkers[key.value] = f"{found.module.name}.{ast.unparse(value)}"
        common = next((k.value for k in call.keywords if k.arg == "common_check"), None)
        if common is not None:
            checkers[""] = f"{found.module.name}.{ast.unparse(common)}"
    return checkers


def backend_line(found: Definition, backend: str) -> Proof | None:
    """The line of a `backend_requirement` that lists a backend."""
    for call in _decorators(found):
        for item in ast.walk(call) if _named(call) == REQUIREMENT else ():
            if isinstance(item, ast.Constant) and item.value == backend:
                return Proof("source", found.module.at(item), found.module.line(item.lineno))
    return None


def _walked(sources: Sources, found: Definition, here: Capability) -> list[Asking]:
    known = _asked.setdefault(found.module, {})
    extra = None if here in CAPABILITIES else here
    key = (found.node.name, extra)
    if key not in known:
        cards = (*CAPABILITIES, here) if extra else CAPABILITIES
        known[key] = list(questions(sources, found.module, found.node, cards))
    return known[key]


def _asks(sources: Sources, found: Definition, here: Capability) -> Iterator[Gate]:
    walked = _walked(sources, found, here)
    together: dict[str, set[Capability]] = {}
    for question, passing, _ in walked:
        together.setdefault(question.chain, set()).update(passing)
    for question, passing, refused in walked:
        if here not in passing and here not in refused:
            continue  # this card never comes there
        everyone = len(together[question.chain]) == len(CAPABILITIES)
        if everyone and here in passing:
            continue
        answer = Answer.PASS if here in passing else Answer.FAIL if question.sure else Answer.NOT_KNOWN
        text = _KINDS[question.kind].format(question.text) + ("" if question.sure else ", on some ways only")
        yield Gate(
            answer, text, Proof("source", question.where, question.text), _shown(sorted(together[question.chain]))
        )


def _own(sources: Sources, found: Definition, here: Capability) -> Iterator[Gate]:
    """A class that is asked `supported(arch)` before it is used."""
    from sublight.audit.source.cards import answered

    if not isinstance(found.node, ast.ClassDef):
        return
    for item in found.node.body:
        if isinstance(item, ast.FunctionDef) and item.name == _SUPPORTED:
            answers = {
                card: answered(sources, found.module, item, [None, card[0] * 10 + card[1]])
                for card in dict.fromkeys((*CAPABILITIES, here))
            }
            text = next((ast.unparse(n.value) for n in ast.walk(item) if isinstance(n, ast.Return) and n.value), "")
            told = answers[here]
            answer = Answer.NOT_KNOWN if told is None else Answer.PASS if told else Answer.FAIL
            cards = [card for card, passes in answers.items() if passes is True]
            yield Gate(answer, text, Proof("source", found.module.at(item), text), _shown(sorted(cards)))


def _shown(cards: Iterable[Capability]) -> tuple[str, ...]:
    return tuple(f"{major}.{minor}" for major, minor in cards)


def gates(sources: Sources, symbol: str, here: Capability, backend: str = "") -> tuple[Gate, ...]:
    """Every gate on the way from a symbol, for one card; with `backend`, those of that backend of it besides.

    Refusals come first, then the narrowest: a place that names few cards says more than one that names many.
    """
    found = definition(sources, symbol)
    if found is None:
        return ()
    gathered = [*_claims(sources, found, here), *_own(sources, found, here)]
    checkers = requirements(found)
    if not backend:
        gathered += _asks(sources, found, here)
    for name in dict.fromkeys(("", backend)):
        checker = definition(sources, checkers[name]) if name in checkers else None
        if checker is not None:
            gathered += [*_enforced(_claims(sources, checker, here)), *_asks(sources, checker, here)]
    unique = {(gate.proof.where, gate.text): gate for gate in gathered}
    order = {Answer.FAIL: 0, Answer.NOT_KNOWN: 1, Answer.PASS: 2}
    return tuple(sorted(unique.values(), key=lambda gate: (order[gate.answer], len(gate.targets) or 99)))


def _enforced(claims: Iterable[Gate]) -> Iterator[Gate]:
    """Claims of a checker, which `backend_requirement` holds callers to."""
    for gate in claims:
        yield msgspec.structs.replace(gate, text=gate.proof.text, claim=False)
