"""What each kind of expression gives."""

import ast
import builtins
from collections.abc import Iterator
from typing import Any

from sublight.audit.source import namespaces, objects, operators, parts
from sublight.audit.source.events import shown
from sublight.audit.source.machine import Expression, Machine, Raising
from sublight.audit.source.values import (
    MANY,
    MISSING,
    Choice,
    External,
    Failure,
    Function,
    Instance,
    Lazy,
    Member,
    Scope,
    Template,
    Unknown,
    Value,
    one_of,
    options,
)

BUILTINS = {name: External(f"builtins.{name}") for name in dir(builtins)}


def constant(_machine: Machine, node: ast.Constant, _scope: Scope) -> Value:
    return node.value


def name(machine: Machine, node: ast.Name, scope: Scope) -> Value:
    if scope.function is not None and not scope.globals_:  # by far the most common: a local
        local = scope.names.get(node.id, MISSING)
        if local is not MISSING and not isinstance(local, (Lazy, Choice)):
            return local
    found = find(machine, node.id, scope)
    if found is MISSING:
        if node.id in BUILTINS:
            return BUILTINS[node.id]
        return Unknown(f"name {node.id}, which is bound nowhere that was read")
    if isinstance(found, Choice) and MISSING in found.options:
        return one_of([option for option in found.options if option is not MISSING])
    return found


def find(machine: Machine, wanted: str, scope: Scope) -> Value:
    """A name from the inside out; MISSING when nothing binds it."""
    at: Scope | None = scope
    while at is not None and at is not scope.module.scope:
        if wanted in at.names and wanted not in at.globals_ and (at is scope or at.owner is None):
            value = at.names[wanted]
            if isinstance(value, Lazy):
                value = at.names[wanted] = namespaces.resolve(machine, value)
            if value is not MISSING:
                return value
        at = at.outer
    return namespaces.lookup(machine, scope.module, wanted)


def attribute(machine: Machine, node: ast.Attribute, scope: Scope) -> Value:
    return objects.require(machine, machine.value(node.value, scope), node.attr, node, scope)


def boolean(machine: Machine, node: ast.BoolOp, scope: Scope) -> Value:
    return _operands(machine, node, node.values, scope)


def _operands(machine: Machine, node: ast.BoolOp, values: list[ast.expr], scope: Scope) -> Value:
    stops = isinstance(node.op, ast.Or)
    value = machine.value(values[0], scope)
    if stops:
        machine.decided[node] = values[0]
    if len(values) == 1:
        return value
    answer = operators.truth(value)
    if answer is stops:
        return value
    if answer is not None:
        return _operands(machine, node, values[1:], scope)
    rest = machine.guarded(values[0], scope, not stops, lambda: _operands(machine, node, values[1:], scope))
    if rest is None:
        return value
    kept = [option for option in options(value) if operators.truth(option) is not (not stops)]
    if operators.truth(rest) is stops and isinstance(rest, bool) and not isinstance(value, Choice):
        return rest  # unknown and False is False, unknown or True is True
    return one_of([*kept, rest])


def unary(machine: Machine, node: ast.UnaryOp, scope: Scope) -> Value:
    value = machine.value(node.operand, scope)
    if isinstance(node.op, ast.Not):
        answer = operators.truth(value)
        return Unknown(f"not {shown(node.operand)}", solid=True) if answer is None else not answer
    if isinstance(value, (int, float)):
        return -value if isinstance(node.op, ast.USub) else +value if isinstance(node.op, ast.UAdd) else ~int(value)
    return Unknown("arithmetic with unknown values", solid=True)


def binary(machine: Machine, node: ast.BinOp, scope: Scope) -> Value:
    return operators.binary(node.op, machine.value(node.left, scope), machine.value(node.right, scope))


def compare(machine: Machine, node: ast.Compare, scope: Scope) -> Value:
    left = machine.value(node.left, scope)
    answers = []
    for kind, comparator in zip(node.ops, node.comparators, strict=True):
        right = machine.value(comparator, scope)
        answers.append(_compared(machine, kind, left, right, node, scope))
        if answers[-1] is False:
            return False
        left = right
    return Unknown(shown(node), solid=True) if None in answers else True


def _compared(machine: Machine, kind: ast.cmpop, left: Value, right: Value, node: ast.AST, scope: Scope) -> bool | None:
    if isinstance(kind, (ast.In, ast.NotIn)):
        if right.__class__ is External and right.dotted == "os.environ" and isinstance(left, str):
            return (left in machine.environment) is isinstance(kind, ast.In)
        for option in options(right):
            if not isinstance(option, (Instance, Member)):
                continue
            answer = machine.asked(option, "__contains__", [left], node, scope)
            if answer is not MISSING:
                found = operators.truth(answer)
                return operators.negated(found) if isinstance(kind, ast.NotIn) else found
    elif isinstance(kind, (ast.Eq, ast.NotEq)) and isinstance(left, Instance) and left.cls and not left.cls.record:
        answer = machine.asked(left, "__eq__", [right], node, scope)
        if answer is not MISSING:
            found = operators.truth(answer)
            return operators.negated(found) if isinstance(kind, ast.NotEq) else found
    return operators.compare(kind, left, right)


def conditional(machine: Machine, node: ast.IfExp, scope: Scope) -> Value:
    answer = operators.truth(machine.value(node.test, scope))
    machine.branch(node.test, scope, answer)
    if answer is not None:
        return machine.value(node.body if answer else node.orelse, scope)
    found: list[Value] = []
    machine.fork(
        node.test,
        scope,
        lambda: found.append(machine.value(node.body, scope)),
        lambda: found.append(machine.value(node.orelse, scope)),
    )
    return one_of(found)


def tuple_(machine: Machine, node: ast.Tuple, scope: Scope) -> Value:
    return tuple(_elements(machine, node.elts, scope))


def list_(machine: Machine, node: ast.List, scope: Scope) -> Value:
    return list(_elements(machine, node.elts, scope))


def set_(machine: Machine, node: ast.Set, scope: Scope) -> Value:
    return parts.as_set(_elements(machine, node.elts, scope))


def _elements(machine: Machine, nodes: list[ast.expr], scope: Scope) -> Iterator[Value]:
    for node in nodes:
        if isinstance(node, ast.Starred):
            yield from parts.spread(machine.value(node.value, scope))
        else:
            yield machine.value(node, scope)


def dict_(machine: Machine, node: ast.Dict, scope: Scope) -> Value:
    found: dict[Any, Value] = {}
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        value = machine.value(value_node, scope)
        if key_node is None:
            parts.updated(found, parts.as_dict(value))
            continue
        key = operators.plain(machine.value(key_node, scope))
        if parts.hashable(key) and not isinstance(key, (Unknown, Choice)):
            found[key] = value
        else:
            found[MANY] = MANY
    return found


def subscript(machine: Machine, node: ast.Subscript, scope: Scope) -> Value:
    value = machine.value(node.value, scope)
    if isinstance(value, (External, Unknown, Function)):
        if isinstance(value, External) and value.dotted in ("os.environ", "typing.Optional"):
            return machine.item(value, machine.value(node.slice, scope), node, scope)
        return value if isinstance(value, Function) else Unknown(shown(node))
    return machine.item(value, machine.value(node.slice, scope), node, scope)


def slice_(machine: Machine, node: ast.Slice, scope: Scope) -> Value:
    parts = [machine.value(part, scope) if part else None for part in (node.lower, node.upper, node.step)]
    return slice(*parts) if all(part is None or isinstance(part, int) for part in parts) else Unknown("a slice")


def joined(machine: Machine, node: ast.JoinedStr, scope: Scope) -> Value:
    text, certain = "", True
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
            continue
        assert isinstance(part, ast.FormattedValue)
        value = machine.value(part.value, scope)
        certain = certain and (operators.known(operators.plain(value)) or isinstance(value, Member))
        text += _formatted(machine, part, value, scope)
    return text if certain else Template(text)


def _formatted(machine: Machine, part: ast.FormattedValue, value: Value, scope: Scope) -> str:
    if part.conversion == ord("r") and isinstance(value, str):
        return repr(value)
    if part.format_spec is not None and isinstance(value, (int, float, str)):
        spec = machine.value(part.format_spec, scope)
        try:
            return format(value, spec) if isinstance(spec, str) else str(value)
        except ValueError:
            return str(value)
    return operators.written(value, unknown="{" + shown(part.value) + "}")


def lambda_(_machine: Machine, node: ast.Lambda, scope: Scope) -> Value:
    around = scope.function.qualified + "." if scope.function else ""
    return Function(
        scope.module, node, f"{around}<lambda>", None if scope is scope.module.scope else scope, scope.owner
    )


def walrus(machine: Machine, node: ast.NamedExpr, scope: Scope) -> Value:
    value = machine.value(node.value, scope)
    machine.assign(node.target, value, scope)
    return value


def comprehension(machine: Machine, node: Any, scope: Scope) -> Value:
    inner = Scope(scope.module, scope)
    inner.function, inner.nonlocals = scope.function, scope.nonlocals
    found: list[Value] = []
    _rounds(machine, node, list(node.generators), inner, found)
    if isinstance(node, ast.DictComp):
        return parts.pairs(found)
    return parts.as_set(found) if isinstance(node, ast.SetComp) else found


def _rounds(machine: Machine, node: Any, generators: list[Any], scope: Scope, found: list[Value]) -> None:
    if not generators:
        if isinstance(node, ast.DictComp):
            found.append((machine.value(node.key, scope), machine.value(node.value, scope)))
        else:
            found.append(machine.value(node.elt, scope))
        return
    first, rest = generators[0], generators[1:]
    for item in parts.spread(machine.iterated(machine.value(first.iter, scope), first.iter, scope)):
        if item is MANY:
            element = Unknown(f"an element of {shown(first.iter)}")
            machine.assign(first.target, element, scope)
            machine.guarded(first.iter, scope, True, lambda: _rounds(machine, node, rest, scope, []))
            found.append(MANY)
            continue
        machine.assign(first.target, item, scope)
        answers = [operators.truth(machine.value(test, scope)) for test in first.ifs]
        if False in answers:
            continue
        if None not in answers:
            _rounds(machine, node, rest, scope, found)
            continue
        possible: list[Value] = []
        _rounds(machine, node, rest, scope, possible)
        found += [one_of((value, MISSING)) for value in possible]


def awaited(machine: Machine, node: ast.Await, scope: Scope) -> Value:
    return machine.value(node.value, scope)


def yielded(machine: Machine, node: ast.Yield | ast.YieldFrom, scope: Scope) -> Value:
    value = machine.value(node.value, scope) if node.value else None
    if scope.yields is not None:
        machine.journal.touch(scope.yields)
        scope.yields.extend(parts.spread(value) if isinstance(node, ast.YieldFrom) else [value])
    return Unknown("what is sent into a generator")


def starred(machine: Machine, node: ast.Starred, scope: Scope) -> Value:
    return machine.value(node.value, scope)


def raised(kind: str, message: str) -> Raising:
    return Raising(Failure((kind, "Exception", "BaseException"), message))


TABLE: dict[type, Expression] = {
    ast.Constant: constant, ast.Name: name, ast.Attribute: attribute, ast.BoolOp: boolean, ast.UnaryOp: unary,
    ast.BinOp: binary, ast.Compare: compare, ast.IfExp: conditional, ast.Tuple: tuple_, ast.List: list_,
    ast.Set: set_, ast.Dict: dict_, ast.Subscript: subscript, ast.Slice: slice_, ast.JoinedStr: joined,
    ast.Lambda: lambda_, ast.NamedExpr: walrus, ast.ListComp: comprehension, ast.SetComp: comprehension,
    ast.DictComp: comprehension, ast.GeneratorExp: comprehension, ast.Await: awaited, ast.Yield: yielded,
    ast.YieldFrom: yielded, ast.Starred: starred,
}  # fmt: skip
