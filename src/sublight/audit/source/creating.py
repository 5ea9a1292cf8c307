"""Objects: what `Class(...)` makes of ordinary classes, records, exceptions and enumerations."""

import ast
from typing import Any

from sublight.audit.source import objects, operators, stdlib
from sublight.audit.source.machine import Machine, Raising
from sublight.audit.source.values import (
    MANY,
    MISSING,
    Choice,
    Class,
    External,
    Failure,
    Function,
    Instance,
    Member,
    Scope,
    Unknown,
    Value,
    one_of,
)


def create(
    machine: Machine, cls: Class, arguments: list[Value], keywords: dict[str, Value], node: Any, scope: Scope
) -> Value:
    """`Class(...)`."""
    if cls.is_enum:
        return _member(machine, cls, arguments, node, scope)
    machine.note("call", scope.module.module, node, cls.dotted)
    for key in (cls.dotted, cls.qualified):
        if key in machine.facts.calls:
            return stdlib.answer(machine.facts.calls[key], arguments, keywords)
    kinds = exception_kinds(cls)
    if kinds:
        message = stdlib.message(arguments)
        return Failure(kinds, message, tuple(arguments))
    _, maker = objects.find(machine, cls, "__new__")
    made = Instance(cls)
    if isinstance(maker, Function):
        new = machine.call(maker, [cls, *arguments], keywords, node, scope)
        made = new if isinstance(new, Instance) else made
    owner, maker = objects.find(machine, cls, "__init__")
    recorded = next((at for at in cls.line() if at.record), None)
    if isinstance(maker, Function) and not (
        recorded and owner and cls.line().index(recorded) < cls.line().index(owner)
    ):
        machine.call(maker, [made, *arguments], keywords, node, scope)
    elif recorded is not None:
        _fields(machine, cls, made, arguments, keywords)
        _, after = objects.find(machine, cls, "__post_init__")
        if isinstance(after, Function):
            machine.call(after, [made], {}, node, scope)
    return made


def exception_kinds(cls: Class) -> tuple[str, ...]:
    """Every class an exception class derives from, itself first; empty for other classes."""
    outside = [base.dotted for base in cls.outside() if isinstance(base, External)]
    inherited = [kind for dotted in outside for kind in stdlib.exception_kinds(dotted)]
    return (*(at.dotted for at in cls.line()), *inherited) if inherited else ()


def _fields(machine: Machine, cls: Class, made: Instance, arguments: list[Value], keywords: dict[str, Value]) -> None:
    positional = list(arguments)
    open_ = MANY in arguments or "**" in keywords
    for name, default in defaults(machine, cls):
        if positional and positional[0] is not MANY:
            value = positional.pop(0)
        elif name in keywords:
            value = keywords[name]
        elif not open_ and default is not MISSING:
            value = default.copy() if isinstance(default, (list, dict, set)) else default
        else:
            value = Unknown(f"field {name} of {cls.qualified}")
        made.attributes[name] = value


def defaults(machine: Machine, cls: Class) -> list[tuple[str, Value]]:
    """Fields of a record with their defaults, MISSING for none."""
    if cls.declared is not None:
        return cls.declared
    return [(name, MISSING if default is None else _default(machine, default, at)) for name, default, at in fields(cls)]


def _default(machine: Machine, default: ast.expr, at: Class) -> Value:
    if isinstance(default, ast.Call) and getattr(default.func, "id", getattr(default.func, "attr", "")) == "field":
        for keyword in default.keywords:
            if keyword.arg == "default":
                return machine.value(keyword.value, at.module.scope)
            if keyword.arg == "default_factory":
                return machine.call(machine.value(keyword.value, at.module.scope), [], {}, default, at.module.scope)
        return Unknown("a field without default")
    return machine.value(default, at.module.scope)


def fields(cls: Class) -> list[tuple[str, ast.expr | None, Class]]:
    """The annotated fields a constructor is made from, bases first: name, default, where."""
    found: dict[str, tuple[str, ast.expr | None, Class]] = {}
    for at in reversed(cls.line()):
        for node in at.node.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if _of_the_class(node.annotation):
                    continue
                found[node.target.id] = (node.target.id, node.value, at)
    return list(found.values())


def _of_the_class(annotation: ast.expr) -> bool:
    """Whether an annotation is `ClassVar`, or one of something."""
    held = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    if isinstance(held, ast.Constant):
        return isinstance(held.value, str) and "ClassVar" in held.value
    return getattr(held, "id", getattr(held, "attr", "")) == "ClassVar"


def _member(machine: Machine, cls: Class, arguments: list[Value], node: Any, scope: Scope) -> Value:
    wanted = arguments[0] if arguments else None
    if isinstance(wanted, Choice):
        return one_of([_member(machine, cls, [option], node, scope) for option in wanted.options])
    if isinstance(wanted, Member) and wanted.cls is cls:
        return wanted
    if isinstance(wanted, Unknown):
        return Unknown(f"a {cls.qualified}", solid=True)
    for member in cls.members.values():
        if operators.equal(member.value, wanted):
            return member
    _, fallback = objects.find(machine, cls, "_missing_")
    if isinstance(fallback, Function):
        return machine.call(fallback, [cls, wanted], {}, node, scope)
    message = f"{wanted!r} is not a valid {cls.qualified}"
    failure = Failure(("ValueError", "Exception", "BaseException"), message)
    machine.note("raise", scope.module.module, node, "ValueError", value=failure)
    raise Raising(failure)
