"""What each kind of statement does."""

import ast
from typing import Any

from sublight.audit.source import definitions, objects, operators, parts, raising
from sublight.audit.source.events import shown
from sublight.audit.source.importing import import_, import_from
from sublight.audit.source.machine import Ended, Machine, Statement
from sublight.audit.source.values import (
    MANY,
    MISSING,
    Choice,
    External,
    Instance,
    Scope,
    Unknown,
    Value,
)


def if_(machine: Machine, node: ast.If, scope: Scope) -> Ended | None:
    answer = operators.truth(machine.value(node.test, scope))
    machine.branch(node.test, scope, answer)
    if answer is not None:
        return machine.block(node.body if answer else node.orelse, scope)
    return machine.fork(
        node.test, scope, lambda: machine.block(node.body, scope), lambda: machine.block(node.orelse, scope)
    )


def expr(machine: Machine, node: ast.Expr, scope: Scope) -> Ended | None:
    if not isinstance(node.value, ast.Constant):
        machine.value(node.value, scope)
    return None


def return_(machine: Machine, node: ast.Return, scope: Scope) -> Ended | None:
    return Ended("return", machine.value(node.value, scope) if node.value else None)


def assign(machine: Machine, node: ast.Assign, scope: Scope) -> Ended | None:
    value = machine.value(node.value, scope)
    for target in node.targets:
        store(machine, target, value, scope)
    return None


def annotated(machine: Machine, node: ast.AnnAssign, scope: Scope) -> Ended | None:
    if node.value is not None:
        store(machine, node.target, machine.value(node.value, scope), scope)
    return None


def augmented(machine: Machine, node: ast.AugAssign, scope: Scope) -> Ended | None:
    load: Any = ast.copy_location(_loading(node.target), node.target)
    now = machine.value(load, scope)
    other = machine.value(node.value, scope)
    if isinstance(now, list) and isinstance(node.op, ast.Add):
        machine.journal.touch(now)
        now.extend(parts.spread(other))
        return None
    store(machine, node.target, operators.binary(node.op, now, other), scope)
    return None


def _loading(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())


def store(machine: Machine, target: ast.expr, value: Value, scope: Scope) -> None:
    """`target = value`."""
    if isinstance(target, ast.Name):
        _name(machine, target.id, value, scope)
    elif isinstance(target, ast.Attribute):
        objects.put(machine, machine.value(target.value, scope), target.attr, value, target, scope)
    elif isinstance(target, ast.Subscript):
        key = machine.value(target.slice, scope)
        _item(machine, machine.value(target.value, scope), key, value, target, scope)
    elif isinstance(target, (ast.Tuple, ast.List)):
        _unpacked(machine, target, value, scope)
    elif isinstance(target, ast.Starred):
        store(machine, target.value, value, scope)


def _name(machine: Machine, name: str, value: Value, scope: Scope) -> None:
    if name in scope.globals_:
        machine.journal.touch(scope.module.written)
        scope.module.written[name] = value
        return
    at = scope
    if name in scope.nonlocals:
        while at.outer is not None and (at is scope or name not in at.names):
            at = at.outer
    machine.journal.touch(at.names, outward=at is not scope.module.scope)  # a module's own names are kept otherwise
    at.names[name] = value


def _unpacked(machine: Machine, target: ast.Tuple | ast.List, value: Value, scope: Scope) -> None:
    elements = target.elts
    if isinstance(value, (tuple, list)) and len(value) == len(elements) and MANY not in value:
        for each in elements:
            if each.__class__ is ast.Starred:
                break
        else:
            for each, item in zip(elements, value, strict=True):
                store(machine, each, item, scope)
            return
    if isinstance(value, Choice) and all(isinstance(o, tuple) and len(o) == len(elements) for o in value.options):
        from sublight.audit.source.values import one_of

        for at, each in enumerate(elements):
            store(machine, each, one_of([option[at] for option in value.options]), scope)
        return
    why = value.why if isinstance(value, Unknown) else "a part of something unknown"
    for each in elements:
        store(machine, each, Unknown(why), scope)


def _item(machine: Machine, container: Value, key: Value, value: Value, node: ast.AST, scope: Scope) -> None:
    key = operators.plain(key)
    if isinstance(container, dict):
        machine.journal.touch(container)
        if parts.hashable(key) and not isinstance(key, (Unknown, Choice)):
            container[key] = value
        else:
            container[MANY] = MANY
    elif isinstance(container, list):
        machine.journal.touch(container)
        if isinstance(key, int) and -len(container) <= key < len(container) and MANY not in container:
            container[key] = value
        else:
            container.append(MANY)
    elif isinstance(container, Instance):
        machine.asked(container, "__setitem__", [key, value], node, scope)
    elif container == External("os.environ") and isinstance(key, str):
        machine.journal.touch(machine.environment)
        machine.environment[key] = value


def delete(machine: Machine, node: ast.Delete, scope: Scope) -> Ended | None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            machine.journal.touch(scope.names)
            scope.names.pop(target.id, None)
        elif isinstance(target, ast.Attribute):
            holder = machine.value(target.value, scope)
            if isinstance(holder, Instance):
                machine.journal.touch(holder.attributes)
                holder.attributes.pop(target.attr, None)
        elif isinstance(target, ast.Subscript):
            container, key = machine.value(target.value, scope), machine.value(target.slice, scope)
            if isinstance(container, dict) and parts.hashable(key):
                machine.journal.touch(container)
                container.pop(key, None)
    return None


# -- loops --------------------------------------------------------------------------------------------------------


def for_(machine: Machine, node: ast.For, scope: Scope) -> Ended | None:
    items = parts.spread(machine.iterated(machine.value(node.iter, scope), node.iter, scope))
    waiting, conditions = len(machine.pending), len(machine.conditions)
    ended: Ended | None = None
    for item in items[: machine.facts.rounds_at_most]:
        ended = _round(machine, node, item, scope)
        if ended is not None:
            break
    else:
        ended = machine.block(node.orelse, scope)
    return _loop_end(machine, waiting, conditions, ended)


def _round(machine: Machine, node: ast.For, item: Value, scope: Scope) -> Ended | None:
    waiting = len(machine.pending)
    optional = isinstance(item, Choice) and MISSING in item.options
    if item is MANY or optional:
        kept = [option for option in item.options if option is not MISSING] if isinstance(item, Choice) else []
        value = kept[0] if len(kept) == 1 else Choice(tuple(kept)) if kept else None
        element = Unknown(f"an element of {shown(node.iter)}") if value is None else value

        def once() -> Ended | None:
            store(machine, node.target, element, scope)
            ended = machine.block(node.body, scope)
            return None if ended and ended.kind == "continue" else ended

        ended = machine.fork(node.iter, scope, once, lambda: None)
    else:
        store(machine, node.target, item, scope)
        ended = machine.block(node.body, scope)
    if ended is not None and ended.kind == "continue":
        ended = None
        machine.arrive("continue", waiting, None)
    else:
        ended, _ = machine.arrive("continue", waiting, ended)
    return ended


def _loop_end(machine: Machine, waiting: int, conditions: int, ended: Ended | None) -> Ended | None:
    if ended is not None and ended.kind == "break":
        ended = None
    if any(item.ended.kind == "break" for item in machine.pending[waiting:]):
        ended, _ = machine.arrive("break", waiting, ended)
    if len(machine.pending) == waiting:
        del machine.conditions[conditions:]
    return ended


def while_(machine: Machine, node: ast.While, scope: Scope) -> Ended | None:
    waiting, conditions = len(machine.pending), len(machine.conditions)
    ended: Ended | None = None
    for _ in range(machine.facts.rounds_at_most):
        answer = operators.truth(machine.value(node.test, scope))
        if answer is False:
            ended = machine.block(node.orelse, scope)
            break
        if answer is None:

            def once() -> Ended | None:
                inner = machine.block(node.body, scope)
                return None if inner and inner.kind in ("continue", "break") else inner

            ended = machine.fork(node.test, scope, once, lambda: None)
            machine.arrive("continue", waiting, None)
            break
        before = len(machine.pending)
        ended = machine.block(node.body, scope)
        ended = None if ended and ended.kind == "continue" else ended
        ended, _ = machine.arrive("continue", before, ended)
        if ended is not None:
            break
    return _loop_end(machine, waiting, conditions, ended)


def break_(_machine: Machine, _node: ast.Break, _scope: Scope) -> Ended | None:
    return Ended("break")


def continue_(_machine: Machine, _node: ast.Continue, _scope: Scope) -> Ended | None:
    return Ended("continue")


def nothing(_machine: Machine, _node: ast.stmt, _scope: Scope) -> Ended | None:
    return None


def match(machine: Machine, node: ast.Match, scope: Scope) -> Ended | None:
    subject = machine.value(node.subject, scope)
    return _cases(machine, subject, node.cases, scope)


def _cases(machine: Machine, subject: Value, cases: list[ast.match_case], scope: Scope) -> Ended | None:
    if not cases:
        return None
    first, rest = cases[0], cases[1:]
    answer = _matches(machine, subject, first.pattern, scope)
    if first.guard is not None and answer is not False:
        guard = operators.truth(machine.value(first.guard, scope))
        answer = False if guard is False else answer if guard else None
    if answer is None:
        return machine.fork(
            first.pattern,
            scope,
            lambda: machine.block(first.body, scope),
            lambda: _cases(machine, subject, rest, scope),
        )
    return machine.block(first.body, scope) if answer else _cases(machine, subject, rest, scope)


def _matches(machine: Machine, subject: Value, pattern: ast.pattern, scope: Scope) -> bool | None:
    if isinstance(pattern, ast.MatchValue):
        return operators.equal(subject, machine.value(pattern.value, scope))
    if isinstance(pattern, ast.MatchSingleton):
        return operators.equal(subject, pattern.value)
    if isinstance(pattern, ast.MatchOr):
        answers = [_matches(machine, subject, each, scope) for each in pattern.patterns]
        return True if True in answers else None if None in answers else False
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        if pattern.name:
            _name(machine, pattern.name, subject, scope)
        return True
    return None


TABLE: dict[type, Statement] = {
    ast.If: if_, ast.Expr: expr, ast.Return: return_, ast.Assign: assign, ast.AnnAssign: annotated,
    ast.AugAssign: augmented, ast.Delete: delete, ast.For: for_, ast.AsyncFor: for_, ast.While: while_,
    ast.Break: break_, ast.Continue: continue_, ast.Pass: nothing, ast.Global: nothing, ast.Nonlocal: nothing,
    ast.Raise: raising.raise_, ast.Assert: raising.assert_, ast.Try: raising.try_, ast.With: raising.with_,
    ast.AsyncWith: raising.with_, ast.Match: match,
    ast.Import: import_, ast.ImportFrom: import_from, ast.FunctionDef: definitions.function,
    ast.AsyncFunctionDef: definitions.function, ast.ClassDef: definitions.class_,
}  # fmt: skip
