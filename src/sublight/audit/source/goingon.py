"""Going on: a walk that stopped before some statement is taken up there again, as often as wanted, from its frames.

A walk is Python's own recursion and cannot be kept as such. But where it stands before a statement that is certain to
come, in a function that was called by a statement of its own, and so on outwards, all that is left to do of it is known
from the statements: the rest of each block, from the inside out. That is what `Frame`s hold; everything else a walk has
is in the machine, and is put in place by whoever goes on.
"""

import ast
from typing import NamedTuple

from sublight.audit.source import calls, raising
from sublight.audit.source.machine import Ended, Machine, Standing
from sublight.audit.source.values import Bound, Function, Scope, Value


class Within(NamedTuple):
    """A block of a function, the statement the walk has come to in it, and how many events there were before it."""

    body: list[ast.stmt]
    at: int
    events: int


class Frame(NamedTuple):
    """A function that is being walked, and its blocks from the outside in."""

    function: Function
    scope: Scope
    blocks: tuple[Within, ...]


def frames(machine: Machine) -> list[Frame]:
    """Frames of the furthest place the walk has come to that can be gone on from; empty where there is none.

    The last block of the last frame says which statement would come next.
    """
    if machine.conditions or machine.pending or machine.handled or machine.resolving or not machine.active:
        return []
    if machine.active[0] is not (machine.running.function if isinstance(machine.running, Bound) else machine.running):
        return []
    found: list[Frame] = []
    before: Standing | None = None
    for place in machine.places:
        entered = len(found) < len(machine.active) and _entered(machine.active[len(found)], before, place)
        here = Within(place.body, place.at, place.events)
        if entered:
            found.append(Frame(machine.active[len(found)], place.scope, (here,)))
        elif found and before is not None and _inner(before, place):
            found[-1] = found[-1]._replace(blocks=(*found[-1].blocks, here))
        else:
            break
        before = place
    return found


def stands_at(machine: Machine) -> list[Frame]:
    """The same for the very statement the walk is about to begin; empty where that cannot be gone on from."""
    found = frames(machine)
    whole = sum(len(frame.blocks) for frame in found) == len(machine.places)
    tries = sum(_is_try(frame, at) for frame in found for at in range(len(frame.blocks) - 1))
    return found if whole and len(found) == len(machine.active) and tries == len(machine.tries) else []


def _is_try(frame: Frame, at: int) -> bool:
    body, statement, _ = frame.blocks[at]
    return isinstance(body[statement], ast.Try)


def _entered(function: Function, before: Standing | None, place: Standing) -> bool:
    """Whether a block is the body of a function that the statement before called, and whose answer nobody wants."""
    node = function.node
    if isinstance(node, ast.Lambda) or place.body is not node.body or place.scope.function is not function:
        return False
    if function.kind != "plain" or function.cached or place.scope.yields is not None:
        return False
    if before is None:
        return True
    statement = before.body[before.at]
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    others = [each for each in ast.walk(call) if isinstance(each, (ast.Call, ast.Await)) and each is not call]
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return not others and name == node.name


def _inner(before: Standing, place: Standing) -> bool:
    """Whether a block is one of an `if` or the body of a `try` that the block before has come to."""
    statement = before.body[before.at]
    if place.scope is not before.scope:
        return False
    if isinstance(statement, ast.If):
        return place.body is statement.body or place.body is statement.orelse
    return isinstance(statement, ast.Try) and place.body is statement.body


def go_on(machine: Machine, frames: list[Frame]) -> Value:
    """Walks all that is left. The machine is as it was when the walk stood there; gives what the first frame returns.

    Raises Raising where the program does.
    """
    first, rest = frames[0], frames[1:]
    machine.active, machine.tries, machine.places = [], [], []
    return calls.inside(machine, first.function, lambda: _left(machine, first, 0, rest))


def _left(machine: Machine, frame: Frame, depth: int, rest: list[Frame]) -> Ended | None:
    """The rest of a block: what is inside the statement that was come to, then the statements after it."""
    body, at, events = frame.blocks[depth]
    if depth + 1 == len(frame.blocks) and not rest:
        return machine.block(body, frame.scope, at, events)
    place = Standing(body, frame.scope, events)
    place.at = at
    machine.places.append(place)
    try:
        ended = _inside(machine, frame, depth, rest)
    finally:
        machine.places.pop()
    return ended or machine.block(body, frame.scope, at + 1, events)


def _inside(machine: Machine, frame: Frame, depth: int, rest: list[Frame]) -> Ended | None:
    body, at, _ = frame.blocks[depth]
    statement = body[at]
    if depth + 1 == len(frame.blocks):
        calls.inside(machine, rest[0].function, lambda: _left(machine, rest[0], 0, rest[1:]))
        return None
    if isinstance(statement, ast.Try):
        seen = frame.blocks[depth + 1].events
        return raising.attempt(machine, statement, frame.scope, seen, lambda: _left(machine, frame, depth + 1, rest))
    return _left(machine, frame, depth + 1, rest)
