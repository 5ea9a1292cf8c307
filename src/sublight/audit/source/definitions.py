"""Definitions: functions and classes as values, with what their decorators make of them."""

import ast

from sublight.audit.source import expressions, objects, operators
from sublight.audit.source.machine import Ended, Machine, Raising
from sublight.audit.source.namespaces import last_name
from sublight.audit.source.values import Class, External, Function, Member, Scope, Unknown, Value

_KINDS = {
    "property": "property", "cached_property": "property", "staticmethod": "static", "classmethod": "class",
    "contextmanager": "context", "asynccontextmanager": "context",
}  # fmt: skip
_COMPILED = frozenset(("jit", "kernel", "prim_func", "autotune"))
_RECORD_BASES = frozenset(("NamedTuple", "Struct", "BaseModel", "TypedDict"))
_ENUMS = frozenset(("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"))


def function(machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> Ended | None:
    made = Function(scope.module, node, _qualified(scope, node.name), _around(scope), scope.owner)
    name = node.name
    runs = []
    for decorator in node.decorator_list:
        bare = last_name(decorator)
        if bare == "overload":
            return None
        if bare == "setter":
            name = f"{node.name}.setter"
        elif bare in _KINDS:
            made.kind = _KINDS[bare]
        elif bare in ("lru_cache", "cache"):
            made.cached = True
        elif bare in _COMPILED and _outside(machine, decorator, scope):
            made.kind = "kernel"
        elif bare in machine.facts.registers:
            runs.append(decorator)
    _name(machine, name, made, scope)
    _run(machine, runs, made, scope)
    return None


def _name(machine: Machine, name: str, made: Value, scope: Scope) -> None:
    machine.journal.touch(scope.names, outward=scope is not scope.module.scope)
    scope.names[name] = made


def _around(scope: Scope) -> Scope | None:
    """What a function inside sees around it: functions, not a class's body and not the module."""
    at: Scope | None = scope
    while at is not None and (at.owner is not None and at.function is None):
        at = at.outer
    return at if at is not None and at.function is not None else None


def _qualified(scope: Scope, name: str) -> str:
    if scope.owner is not None and scope.function is None:
        return f"{scope.owner.qualified}.{name}"
    return f"{scope.function.qualified}.{name}" if scope.function else name


def _outside(machine: Machine, decorator: ast.expr, scope: Scope) -> bool:
    """Whether a decorator comes from outside the sources, as compilers do."""
    root: ast.expr = decorator.func if isinstance(decorator, ast.Call) else decorator
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and isinstance(expressions.find(machine, root.id, scope), External)


def _run(machine: Machine, decorators: list[ast.expr], made: Value, scope: Scope) -> None:
    for decorator in reversed(decorators):
        try:
            machine.call(machine.value(decorator, scope), [made], {}, decorator, scope)
        except Raising:
            continue  # the event says it


def class_(machine: Machine, node: ast.ClassDef, scope: Scope) -> Ended | None:
    bases = [_base(machine, base, scope) for base in node.bases]
    made = Class(scope.module, node, _qualified(scope, node.name), bases)
    inner = Scope(scope.module, _around(scope), made)
    inner.names = made.names
    made.is_enum = any(
        isinstance(base, External) and base.dotted.rpartition(".")[2] in _ENUMS for base in made.outside()
    )
    machine.block(node.body, inner)
    if made.is_enum:
        _members(made)
    made.record = _is_record(made, node)
    _name(machine, node.name, made, scope)
    _announce(machine, made, node, scope)
    _run(machine, [d for d in node.decorator_list if last_name(d) in machine.facts.registers], made, scope)
    return None


def _base(machine: Machine, node: ast.expr, scope: Scope) -> Value:
    return machine.value(node.value if isinstance(node, ast.Subscript) else node, scope)


def _is_record(made: Class, node: ast.ClassDef) -> bool:
    """Whether the constructor is made from annotated fields: by a decorator, or by a base that does so."""
    if "__init__" in made.names or made.is_enum:
        return False
    inherits = any(isinstance(b, Class) and b.record for b in made.bases) or any(
        isinstance(b, External) and b.dotted.rpartition(".")[2] in _RECORD_BASES for b in made.outside()
    )
    return inherits or (bool(node.decorator_list) and any(isinstance(each, ast.AnnAssign) for each in node.body))


def _members(made: Class) -> None:
    by_value: list[Member] = []
    for name, value in list(made.names.items()):
        if name.startswith("_") or isinstance(value, (Function, Class)) or ".setter" in name:
            continue
        if isinstance(value, Unknown) and "enum.auto" in value.why:
            text = any(isinstance(b, External) and b.dotted.endswith("StrEnum") for b in made.outside())
            value = name.lower() if text else len(by_value) + 1  # noqa: PLW2901
        same = next((member for member in by_value if operators.equal(member.value, value)), None)
        made.members[name] = same or Member(made, name, value)
        if same is None:
            by_value.append(made.members[name])


def _announce(machine: Machine, made: Class, node: ast.ClassDef, scope: Scope) -> None:
    """Class attributes that want to know their name (`__set_name__`) are told."""
    for name, value in list(made.names.items()):
        if type(value).__name__ == "Instance" and value.cls is not None:
            _, hook = objects.find(machine, value.cls, "__set_name__")
            if isinstance(hook, Function):
                machine.asked(value, "__set_name__", [made, name], node, scope)
