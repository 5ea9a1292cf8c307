"""What a card's walk holds of a program: names, objects, functions, and what makes two of them the same."""

import ast
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sublight.audit.source.arithmetic import UNKNOWN, Asked
from sublight.audit.source.tree import Module


class Reference(msgspec.Struct, frozen=True):
    """A function or class, with the names around it."""

    module: Module
    node: ast.AST
    outer: Any = None


class Thing(msgspec.Struct):
    """An object: its class, and what is known of its attributes."""

    of: Reference
    attributes: dict[str, Any]


class Package(msgspec.Struct, frozen=True):
    """An imported name that was not looked up yet."""

    dotted: str


class Scope:
    """Names of a function or module, and of what stands around it."""

    def __init__(self, module: Module, names: dict[str, Any], outer: "Scope | None" = None) -> None:
        self.module = module
        self.names = names
        self.outer = outer

    def find(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        return self.outer.find(name) if self.outer else None


class Method(msgspec.Struct, frozen=True):
    """A function of an object, with the object."""

    thing: Thing
    function: Reference


def same(values: Iterable[Any]) -> Any:
    """What several ways come to: a value that all of them agree on, else unknown."""
    first, *others = values
    if all(other is first or (other is not UNKNOWN and identity(other) == identity(first)) for other in others):
        return first
    return UNKNOWN


def merge(names: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Names after a way that may have been taken, `others` those of the other way."""
    for name, other in others.items():
        value = names.get(name, UNKNOWN)
        if value is not other:
            names[name] = same((value, other))


def identity(value: Any, around: tuple[Any, ...] = ()) -> Any:
    """What makes two known values the same. `around`: objects that hold it; one may hold itself again."""
    if isinstance(value, Asked):
        return (repr(value.value), value.card)
    if isinstance(value, Thing):
        if any(each is value for each in around):
            return ("again", id(value.of.node))
        held = (*around, value)
        return (id(value.of.node), tuple((name, identity(item, held)) for name, item in value.attributes.items()))
    if isinstance(value, Method):
        return (id(value.function.node), identity(value.thing, around))
    if isinstance(value, Reference):
        return id(value.node)
    return value.dotted if isinstance(value, Package) else None
