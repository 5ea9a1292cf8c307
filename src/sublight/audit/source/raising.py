"""Refusals and what catches them: `raise`, `assert`, `try`, and `with`, which may suppress."""

import ast
from collections.abc import Callable, Iterable

from sublight.audit.source import creating, operators, stdlib
from sublight.audit.source.events import shown
from sublight.audit.source.machine import Ended, Machine, Raising
from sublight.audit.source.values import MISSING, Class, External, Failure, Scope, Template, Unknown, Value


def raise_(machine: Machine, node: ast.Raise, scope: Scope) -> Ended | None:
    if node.exc is None:
        failure = machine.handled[-1] if machine.handled else Failure(("Exception",), "")
    else:
        failure = _failure(machine.value(node.exc, scope), node.exc)
    machine.note("raise", scope.module.module, node, failure.kind, value=failure)
    raise Raising(failure)


def _failure(value: Value, node: ast.expr) -> Failure:
    if isinstance(value, Failure):
        return value
    if isinstance(value, External):
        return Failure(stdlib.exception_kinds(value.dotted) or (value.dotted, "Exception"), "")
    if isinstance(value, Class):
        return Failure(creating.exception_kinds(value) or (value.dotted, "Exception"), "")
    return Failure(("Exception",), shown(node))


def assert_(machine: Machine, node: ast.Assert, scope: Scope) -> Ended | None:
    answer = operators.truth(machine.value(node.test, scope))
    machine.note("assert", scope.module.module, node.test, outcome=answer)
    if answer is False:
        message = machine.value(node.msg, scope) if node.msg else f"assert {shown(node.test)}"
        text = message.text if isinstance(message, Template) else operators.written(message)
        failure = Failure(("AssertionError", "Exception", "BaseException"), text)
        machine.note("raise", scope.module.module, node, "AssertionError", value=failure)
        raise Raising(failure)
    return None


def try_(machine: Machine, node: ast.Try, scope: Scope) -> Ended | None:
    return attempt(machine, node, scope, len(machine.events), lambda: machine.block(node.body, scope))


def attempt(machine: Machine, node: ast.Try, scope: Scope, seen: int, body: Callable[[], Ended | None]) -> Ended | None:
    """A `try` with what walks its body; `seen`: how many events there were before it."""
    known = len(machine.conditions)
    tries, depth, handled = len(machine.tries), len(machine.active), len(machine.handled)
    machine.tries.append((scope.module.module, node))
    try:
        ended = body()
        del machine.tries[tries:]
        if ended is None:
            ended = machine.block(node.orelse, scope)
        _perhaps(machine, node, scope, seen, known)
    except Raising as raising:
        del machine.tries[tries:], machine.active[depth:], machine.handled[handled:]
        handler = _handler(machine, node, raising.failure, scope)
        if handler is None:
            machine.block(node.finalbody, scope)
            raise
        ended = _handle(machine, handler, raising.failure, scope)
    last = machine.block(node.finalbody, scope)
    return last or ended


def _handle(machine: Machine, handler: ast.ExceptHandler, failure: Failure, scope: Scope) -> Ended | None:
    machine.handled.append(failure)
    if handler.name:
        machine.assign(ast.Name(handler.name, ast.Store()), failure, scope)
    try:
        return machine.block(handler.body, scope)
    finally:
        machine.handled.pop()


def _perhaps(machine: Machine, node: ast.Try, scope: Scope, seen: int, known: int) -> None:
    """A failure on one side of something unknown inside the body may bring the handler into play."""
    for event in machine.events[seen:]:
        if event.kind != "raise" or len(event.conditions) <= known or not isinstance(event.value, Failure):
            continue
        failure = event.value
        handler = _handler(machine, node, failure, scope)
        if handler is not None:
            condition = event.conditions[-1].node

            def handle(handler: ast.ExceptHandler = handler, failure: Failure = failure) -> Ended | None:
                return _handle(machine, handler, failure, scope)

            machine.fork(condition, scope, handle, lambda: None)
            return


def _handler(machine: Machine, node: ast.Try, failure: Failure, scope: Scope) -> ast.ExceptHandler | None:
    for handler in node.handlers:
        if handler.type is None:
            return handler
        value = machine.value(handler.type, scope)
        if catches(value if isinstance(value, tuple) else (value,), failure):
            return handler
    return None


def catches(classes: Iterable[Value], failure: Failure) -> bool:
    names = {each.dotted.removeprefix("builtins.") for each in classes if isinstance(each, (Class, External))}
    return bool(names & set(failure.kinds))


def with_(machine: Machine, node: ast.With, scope: Scope) -> Ended | None:
    suppressed: tuple[Value, ...] = ()
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and shown(call.func).endswith("suppress"):
            suppressed = tuple(machine.value(each, scope) for each in call.args)
            continue
        context = machine.value(call, scope)
        entered = machine.asked(context, "__enter__", [], call, scope)
        if item.optional_vars is not None:
            value = Unknown(f"what {shown(call)} gives", solid=True) if entered is MISSING else entered
            machine.assign(item.optional_vars, value, scope)
    if not suppressed:
        return machine.block(node.body, scope)
    tries, depth = len(machine.tries), len(machine.active)
    machine.tries.append((scope.module.module, node))
    try:
        return machine.block(node.body, scope)
    except Raising as raising:
        if not catches(suppressed, raising.failure):
            raise
        return None
    finally:
        del machine.tries[tries:], machine.active[depth:]
