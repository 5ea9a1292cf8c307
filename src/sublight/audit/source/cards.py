"""Cards: which compute capabilities the code on the way from a function lets through, and where it asks.

A gate stands anywhere: in a wrapper, in the constructor of a kernel class that is reached at the first call, in the
list of architectures a just-in-time build is asked for. The way from a function is walked for a dozen capabilities in
turn, and a gate is a place that some of them do not pass.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from sublight.audit.source.arithmetic import UNKNOWN, Asked
from sublight.audit.source.cardvalues import Reference, Scope
from sublight.audit.source.cardwalk import Capability, Question, Walk
from sublight.audit.source.tree import Module, Sources

__all__ = ["CAPABILITIES", "Capability", "Question", "answered", "constant", "questions"]

CAPABILITIES: tuple[Capability, ...] = (
    (7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (10, 7), (11, 0), (12, 0), (12, 1),
)  # fmt: skip


def questions(
    sources: Sources, module: Module, function: ast.AST, capabilities: Iterable[Capability] = CAPABILITIES
) -> Iterator[tuple[Question, tuple[Capability, ...], tuple[Capability, ...]]]:
    """Every place on the way from a function that asks for the card: with those that pass, and those refused there.

    A capability that never comes to a place, because an earlier one refused it or sent it elsewhere, is in neither.
    """
    passing: dict[Question, list[Capability]] = {}
    refused: dict[Question, list[Capability]] = {}
    inert: dict[Any, Any] = {}
    for capability in capabilities:
        walk = Walk(sources, capability, inert)
        walk.apply(Reference(module, function), [], {})
        for question, passes in walk.asked.items():
            passing.setdefault(question, [])
            refused.setdefault(question, [])
            (passing if passes else refused)[question].append(capability)
    for question, cards in passing.items():
        yield question, tuple(cards), tuple(refused[question])


def constant(sources: Sources, module: Module, node: ast.expr) -> Any:
    """What an expression of the module level comes to: `Asked` with its value, or `UNKNOWN`."""
    return Walk(sources, CAPABILITIES[0]).value(node, Scope(module, {}))


def answered(sources: Sources, module: Module, function: ast.AST, arguments: list[Any]) -> Any:
    """What a function returns for these arguments (None: not known), as far as it is known; None when it is not."""
    walk = Walk(sources, CAPABILITIES[0])
    given = [UNKNOWN if argument is None else Asked(argument, False) for argument in arguments]
    walk.depth = 1  # a call from inside: what is given counts, and so do defaults
    value = walk.enter(Reference(module, function), given, {})
    return value.value if isinstance(value, Asked) else None
