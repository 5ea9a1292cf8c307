"""Import statements as a walk comes past them: what is bound, what it needs, and what guards it."""

import ast

from sublight.audit.source import namespaces
from sublight.audit.source.dynamic import compiled
from sublight.audit.source.events import Event
from sublight.audit.source.guards import guard_of
from sublight.audit.source.machine import Ended, Machine, Raising
from sublight.audit.source.values import External, Failure, Lazy, Scope, Value

_CONSTANTS: dict[str, Value] = {"typing.TYPE_CHECKING": False, "sys.platform": "linux"}
_FAILURE = ("ModuleNotFoundError", "ImportError", "Exception", "BaseException")


def import_(machine: Machine, node: ast.Import, scope: Scope) -> Ended | None:
    for alias in node.names:
        ended = _one(machine, node, alias.name, "", alias.asname or alias.name.partition(".")[0], scope, alias)
        if ended is not None:
            return ended
    return None


def import_from(machine: Machine, node: ast.ImportFrom, scope: Scope) -> Ended | None:
    origin = machine.sources.absolute(scope.module.module, node.module, node.level)
    for alias in node.names:
        if alias.name == "*":
            continue
        ended = _one(machine, node, origin, alias.name, alias.asname or alias.name, scope, alias)
        if ended is not None:
            return ended
    return None


def _one(
    machine: Machine,
    node: ast.Import | ast.ImportFrom,
    origin: str,
    name: str,
    bound: str,
    scope: Scope,
    alias: ast.alias,
) -> Ended | None:
    symbol = f"{origin}.{name}" if name else origin
    here = alias if hasattr(alias, "lineno") else node
    event = machine.note("import", scope.module.module, here, symbol)
    event.how = "lazy" if scope.function is not None else "module level"
    if origin.partition(".")[0] in machine.facts.follow:
        library = _is_compiled(machine, origin, name)
        if library and (name or alias.asname):
            _bind(machine, bound, External(symbol), scope)
            return None
        if not library:
            _load(machine, event, origin, name)
        _bind(machine, bound, Lazy(origin if name or alias.asname else origin.partition(".")[0], name), scope)
        return None
    guards = [guard_of(module, around, frozenset((origin.partition(".")[0],))) for module, around in machine.tries]
    inner = next((guard for guard in reversed(guards) if guard is not None), None)
    if inner is not None:
        event.how, event.on_failure = "guarded", inner.on_failure
    answer = machine.facts.importable(symbol)
    value = External(symbol if name or alias.asname else origin.partition(".")[0])
    value = machine.facts.values.get(value.dotted, _CONSTANTS.get(value.dotted, value))
    if answer is None:

        def works() -> None:
            _bind(machine, bound, value, scope)

        def fails() -> None:
            _fail(machine, event, f"cannot import {symbol}")

        return machine.fork(node, scope, works, fails)
    if not answer:
        _fail(machine, event, f"cannot import {symbol}")
    _bind(machine, bound, value, scope)
    return None


def _is_compiled(machine: Machine, origin: str, name: str) -> bool:
    """Whether a module is shipped as a library: it is there, and nothing in it can be read."""
    whole = f"{origin}.{name}" if name else origin
    return any(
        machine.sources.module(dotted) is None and bool(compiled(machine.sources, dotted))
        for dotted in dict.fromkeys((origin, whole))
        if "." in dotted
    )


def _load(machine: Machine, event: Event, origin: str, name: str) -> None:
    """A module of the sources is loaded, and with it what it registers; `name` may be a module inside a package."""
    found = namespaces.space(machine, origin)
    if name and (found is None or found.module.is_package):
        inner = namespaces.space(machine, f"{origin}.{name}")
        found = found or inner
    if found is None:
        _fail(machine, event, f"No module named {origin!r}")


def _bind(machine: Machine, name: str, value: Value, scope: Scope) -> None:
    if name in scope.globals_:
        machine.journal.touch(scope.module.written)
        scope.module.written[name] = value
        return
    machine.journal.touch(scope.names, outward=scope is not scope.module.scope)
    scope.names[name] = value


def _fail(machine: Machine, event: Event, message: str) -> None:
    failure = Failure(_FAILURE, message)
    machine.note("raise", event.module, event.node, "ModuleNotFoundError", value=failure)
    raise Raising(failure)
