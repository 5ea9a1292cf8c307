"""Arithmetic on constants in other people's code, that remembers whether a value hangs on the card.

Knows what decisions about architectures are made of: numbers, strings and their formatting, comparisons, containers.
"""

import ast
import operator
from collections.abc import Callable
from typing import Any

import msgspec


class Asked(msgspec.Struct, frozen=True):
    """A known value; `card` says that it follows from the compute capability."""

    value: Any
    card: bool


UNKNOWN: Any = object()

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
}
_PURE: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "str": str,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "list": list,
    "sorted": sorted,
}
_TEXT = ("lower", "upper", "startswith", "endswith", "removeprefix", "replace", "strip")

Evaluate = Callable[[ast.expr], Any]


def value_of(node: ast.expr, named: Callable[[str], Any], other: Evaluate) -> Any:
    """The value of an expression, `UNKNOWN` where it is not known.

    Args:
        named: what a name stands for.
        other: what everything comes to that is no arithmetic (calls, attributes); it is asked for all parts of an
            expression, since a call may stand anywhere.
    """

    def go(item: ast.expr) -> Any:
        return value_of(item, named, other)

    if isinstance(node, ast.Constant):
        return Asked(node.value, False)
    if isinstance(node, ast.Name):
        return named(node.id)
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        return handler(node, go)
    if isinstance(node, ast.Call) and (pure := _call(node, go)) is not UNKNOWN:
        return pure
    return other(node)


def _safe(function: Callable[..., Any], *arguments: Asked) -> Any:
    try:
        return Asked(function(*(item.value for item in arguments)), any(item.card for item in arguments))
    except (TypeError, ValueError, KeyError, IndexError, ZeroDivisionError, AttributeError):
        return UNKNOWN


def _binary(node: ast.BinOp, go: Evaluate) -> Any:
    left, right, function = go(node.left), go(node.right), _BINARY.get(type(node.op))
    if isinstance(left, Asked) and isinstance(right, Asked) and function:
        return _safe(function, left, right)
    return UNKNOWN


def _unary(node: ast.UnaryOp, go: Evaluate) -> Any:
    value = go(node.operand)
    if not isinstance(value, Asked):
        return UNKNOWN
    return _safe(operator.not_ if isinstance(node.op, ast.Not) else operator.neg, value)


def _bool(node: ast.BoolOp, go: Evaluate) -> Any:
    """A part that decides is enough: `major == 10 and something_unknown` is False on another card."""
    decisive = isinstance(node.op, ast.Or)
    values = [go(item) for item in node.values]
    for value in values:
        if isinstance(value, Asked) and bool(value.value) is decisive:
            return Asked(decisive, value.card)
    if all(isinstance(value, Asked) for value in values):
        return Asked(not decisive, any(value.card for value in values))
    return UNKNOWN


def _compare(node: ast.Compare, go: Evaluate) -> Any:
    values = [go(item) for item in [node.left, *node.comparators]]
    if not all(isinstance(value, Asked) for value in values):
        return UNKNOWN
    result: Any = Asked(True, any(value.card for value in values))
    for symbol, left, right in zip(node.ops, values, values[1:], strict=False):
        step = _safe(_COMPARE[type(symbol)], left, right)
        if step is UNKNOWN:
            return UNKNOWN
        if not step.value:
            return Asked(False, result.card)
    return result


def _container(node: ast.List | ast.Tuple | ast.Set, go: Evaluate) -> Any:
    values = [go(item) for item in node.elts]
    if not all(isinstance(value, Asked) for value in values):
        return UNKNOWN
    kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
    return Asked(kind(value.value for value in values), any(value.card for value in values))


def _subscript(node: ast.Subscript, go: Evaluate) -> Any:
    value, index = go(node.value), go(node.slice)
    if isinstance(value, Asked) and isinstance(index, Asked):
        return _safe(operator.getitem, value, index)
    return UNKNOWN


def _joined(node: ast.JoinedStr, go: Evaluate) -> Any:
    parts = [go(item.value) if isinstance(item, ast.FormattedValue) else go(item) for item in node.values]
    if all(isinstance(part, Asked) for part in parts):
        return Asked("".join(str(part.value) for part in parts), any(part.card for part in parts))
    return UNKNOWN


def _either(node: ast.IfExp, go: Evaluate) -> Any:
    test = go(node.test)
    sides = go(node.body), go(node.orelse)
    if not isinstance(test, Asked):
        return UNKNOWN
    chosen = sides[0] if test.value else sides[1]
    return Asked(chosen.value, chosen.card or test.card) if isinstance(chosen, Asked) else chosen


def _call(node: ast.Call, go: Evaluate) -> Any:
    """`int(x)`, `"sm" + x.lower()`: calls without effects, on known values."""
    if isinstance(node.func, ast.Name) and node.func.id in _PURE and len(node.args) == 1:
        value = go(node.args[0])
        return _safe(_PURE[node.func.id], value) if isinstance(value, Asked) else UNKNOWN
    if isinstance(node.func, ast.Attribute) and node.func.attr in _TEXT and not node.keywords:
        values = [go(node.func.value), *(go(item) for item in node.args)]
        if all(isinstance(value, Asked) and isinstance(value.value, str) for value in values):
            return _safe(getattr(str, node.func.attr), *values)
    return UNKNOWN


_HANDLERS: dict[type, Callable[[Any, Evaluate], Any]] = {
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _bool,
    ast.Compare: _compare,
    ast.List: _container,
    ast.Tuple: _container,
    ast.Set: _container,
    ast.Subscript: _subscript,
    ast.JoinedStr: _joined,
    ast.IfExp: _either,
}
