"""What is known of names outside the sources: Python's own functions. Everything else gives something unknown."""

import builtins
import math
from typing import Any

from sublight.audit.source import builtin, containers, operators, reflection
from sublight.audit.source.asked import exact
from sublight.audit.source.machine import Machine
from sublight.audit.source.values import (
    Bound,
    Choice,
    Class,
    External,
    Failure,
    Function,
    Instance,
    Member,
    Native,
    Partial,
    Scope,
    Template,
    Unknown,
    Value,
)

LEVELS = frozenset(["debug", "info", "warning", "warn", "error", "critical", "exception", "log"])
_SILENT = ("builtins.", "typing.", "functools.", "dataclasses.", "super.", "enum.", "abc.", "contextlib.", "copy.")


def answer(known: Value, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    """What a described function answers: a Python function is asked, anything else is the answer."""
    if isinstance(known, (Function, Bound, Class, Partial, External, Unknown, Instance, Member, Choice)):
        return known
    if not callable(known):
        return known
    return known([exact(each) for each in arguments], {name: exact(value) for name, value in keywords.items()})


def external(
    machine: Machine, callee: External, arguments: list[Value], keywords: dict[str, Value], node: Any, scope: Scope
) -> Value:
    """A call of something outside."""
    dotted = callee.dotted
    if not dotted.startswith(_SILENT):
        said = {name: value for name, value in keywords.items() if isinstance(value, str)}
        machine.note("call", scope.module.module, node, dotted, value=said)
    if dotted in machine.facts.calls:
        return answer(machine.facts.calls[dotted], arguments, keywords)
    work = builtin.WORK.get(dotted)
    if work is not None:
        return work(machine, arguments, keywords, node, scope)
    bare = dotted.rpartition(".")[2]
    if dotted.startswith(("logging.", "warnings.")) and bare.removesuffix("_once") in LEVELS:
        return _log(machine, bare, arguments, node, scope)
    kinds = exception_kinds(dotted)
    if kinds:
        return Failure(kinds, message(arguments), tuple(arguments))
    if dotted.startswith("builtins."):
        return _builtin(bare, arguments, keywords)
    if dotted.startswith("math.") and all(isinstance(a, (int, float)) for a in arguments):
        return _computed(getattr(math, bare, None), arguments)
    return Unknown(f"what {dotted} gives", solid=bare[:1].isupper() or dotted.startswith("torch."))


def _computed(work: Any, arguments: list[Value]) -> Value:
    try:
        return work(*arguments)
    except Exception:
        return Unknown("arithmetic that fails", solid=True)


_PURE = frozenset(
    ("abs", "bin", "bool", "bytes", "chr", "divmod", "float", "format", "hash", "hex", "int", "max", "min", "oct",
     "ord", "pow", "range", "repr", "round", "str", "sum")
)  # fmt: skip


def _builtin(bare: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    plain = [operators.plain(a) for a in arguments]
    if bare == "str" and len(arguments) == 1 and not operators.known(plain[0]):
        text = operators.written(arguments[0])
        return text if isinstance(arguments[0], Member) else Template(text)
    if bare == "repr" and len(arguments) == 1 and not operators.known(plain[0]):
        return Template(operators.written(arguments[0]))
    if bare in _PURE and not keywords and all(operators.known(a) for a in plain):
        return _computed(getattr(builtins, bare), plain)
    return Unknown(f"what {bare} gives", solid=True)


def message(arguments: list[Value]) -> str:
    """What an exception says."""
    return operators.written(arguments[0]) if arguments else ""


def exception_kinds(dotted: str) -> tuple[str, ...]:
    """Every class an outside exception derives from, itself first; empty for what is no exception."""
    bare = dotted.rpartition(".")[2]
    if dotted.startswith("builtins."):
        found = getattr(builtins, bare, None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return tuple(cls.__name__ for cls in found.__mro__[:-1])
        return ()
    return (dotted, "Exception", "BaseException") if bare.endswith(("Error", "Exception")) else ()


def _log(machine: Machine, level: str, arguments: list[Value], node: Any, scope: Scope) -> Value:
    if arguments:
        first = arguments[0]
        text = operators.written(first, unknown="?")
        if len(arguments) > 1 and isinstance(first, str):
            text = operators.written(operators.format_percent(first, tuple(arguments[1:])))
        machine.note("log", scope.module.module, node, level, value=text)
    return None


def native(
    machine: Machine, callee: Native, arguments: list[Value], keywords: dict[str, Value], node: Any, scope: Scope
) -> Value:
    """A method of a constant, a container, or of an outside base of an object."""
    receiver, name = callee.receiver, callee.name
    if isinstance(receiver, Instance) and name == "_replace" and "**" not in keywords:
        return Instance(receiver.cls, {**receiver.attributes, **keywords}, receiver.open)
    if isinstance(receiver, Instance):
        return _of_base(machine, receiver, name, arguments, node, scope)
    return containers.method(machine, callee, arguments, keywords, node, scope)


def _of_base(machine: Machine, receiver: Instance, name: str, arguments: list[Value], node: Any, scope: Scope) -> Value:
    if name in ("register_parameter", "register_buffer", "register_module", "add_module", "__setattr__"):
        if len(arguments) >= 2:
            return reflection.raw_set(machine, [receiver, *arguments[:2]], {}, node, scope)
        return None
    if name == "__getattribute__":
        return reflection.raw_get(machine, [receiver, *arguments], {}, node, scope)
    return Unknown(f"what {name} of an outside base gives", solid=True)
