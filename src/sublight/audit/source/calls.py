"""Calls: functions are entered, classes make objects, what lies outside is named and gives something unknown."""

import ast
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from sublight.audit.source import creating, objects, parts, stdlib
from sublight.audit.source.machine import Ended, Machine, Raising
from sublight.audit.source.tree import Module
from sublight.audit.source.values import (
    MANY,
    MISSING,
    Bound,
    Choice,
    Class,
    External,
    Failure,
    Function,
    Instance,
    Member,
    Native,
    Parent,
    Partial,
    Scope,
    Unknown,
    Value,
    one_of,
)

RECURSION_AT_MOST = 3


def expression(machine: Machine, node: ast.Call, scope: Scope) -> Value:
    """A call as it stands in the program."""
    if isinstance(node.func, ast.Name) and node.func.id == "super" and "super" not in scope.names:
        return _parent(machine, node, scope)
    callee = machine.value(node.func, scope)
    arguments: list[Value] = []
    for each in node.args:
        if isinstance(each, ast.Starred):
            arguments += parts.spread(machine.value(each.value, scope))
        else:
            arguments.append(machine.value(each, scope))
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        value = machine.value(keyword.value, scope)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
            keywords.update(value)
        elif (gathered := _gathered(callee, value)) is not None:
            keywords.update(gathered)
        else:
            keywords["**"] = MANY
    return call(machine, callee, arguments, keywords, node, scope)


def _gathered(callee: Value, value: Value) -> dict[Any, Value] | None:
    """Keywords that may be missing, for a function that gathers them all in its own `**`; None for any others."""
    items = parts.as_dict(value) if isinstance(value, Choice) else {MANY: MANY}
    if not isinstance(callee, Function) or callee.node.args.kwarg is None:
        return None
    spec = callee.node.args
    named = {each.arg for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    return items if all(isinstance(key, str) and key not in named for key in items) else None


def _parent(machine: Machine, node: ast.Call, scope: Scope) -> Value:
    at: Scope | None = scope
    while at is not None and (at.function is None or at.function.owner is None):
        at = at.outer
    if at is None or at.function is None or at.function.owner is None:
        return Unknown("super() outside a method")
    if len(node.args) == 2:
        return Parent(at.function.owner, machine.value(node.args[1], scope))
    parameters = at.function.node.args
    first = (parameters.posonlyargs + parameters.args)[:1]
    return Parent(at.function.owner, at.names.get(first[0].arg) if first else None)


def call(
    machine: Machine, callee: Value, arguments: list[Value], keywords: dict[str, Value], node: Any, scope: Scope
) -> Value:
    if isinstance(callee, Choice):
        return _each(machine, callee, arguments, keywords, node, scope)
    if isinstance(callee, Bound):
        return function(machine, callee.function, [callee.receiver, *arguments], keywords, node, scope)
    if isinstance(callee, Function):
        return function(machine, callee, arguments, keywords, node, scope)
    if isinstance(callee, Class):
        return creating.create(machine, callee, arguments, keywords, node, scope)
    if isinstance(callee, Partial):
        merged = callee.keywords | keywords
        return call(machine, callee.target, [*callee.arguments, *arguments], merged, node, scope)
    if isinstance(callee, External):
        return stdlib.external(machine, callee, arguments, keywords, node, scope)
    if isinstance(callee, Native):
        return stdlib.native(machine, callee, arguments, keywords, node, scope)
    if isinstance(callee, Instance):
        return _instance(machine, callee, arguments, keywords, node, scope)
    if callee is None:
        raise Raising(Failure(("TypeError", "Exception"), "None is called"))
    machine.note("unknown call", scope.module.module, node)
    why = callee.why if isinstance(callee, Unknown) else f"a {type(callee).__name__} is called"
    return Unknown(f"call of something unknown ({why})", solid=False)


def _each(
    machine: Machine, callee: Choice, arguments: list[Value], keywords: dict[str, Value], node: Any, scope: Scope
) -> Value:
    """Every alternative is called as if on a side of an unknown decision; those that fail fall out."""
    found = []
    for option in callee.options:
        if option is MISSING:
            continue

        def one(option: Value = option) -> Value:
            return call(machine, option, arguments, keywords, node, scope)

        value = machine.guarded(node.func if isinstance(node, ast.Call) else node, scope, True, one)
        if value is not None or option is not None:
            found.append(value)
    return one_of(found)


def _instance(
    machine: Machine, callee: Instance, arguments: list[Value], keywords: dict[str, Value], node: Any, scope: Scope
) -> Value:
    found = asked(machine, callee, "__call__", arguments, node, scope, keywords)
    if found is not MISSING:
        return found
    cls = callee.cls
    if cls is not None and any(
        isinstance(base, External) and base.dotted.startswith("torch.nn") for base in cls.outside()
    ):
        found = asked(machine, callee, "forward", arguments, node, scope, keywords)
    return Unknown("call of an object whose __call__ is not known") if found is MISSING else found


def asked(
    machine: Machine,
    value: Value,
    name: str,
    arguments: list[Value],
    node: Any,
    scope: Scope,
    keywords: dict[str, Value] | None = None,
) -> Value:
    """A special method, looked up on the class; MISSING when no class of the sources defines it."""
    cls = value.cls if isinstance(value, (Instance, Member)) else None
    if cls is None:
        return MISSING
    _, found = objects.find(machine, cls, name)
    if not isinstance(found, Function):
        return MISSING
    return function(machine, found, [value, *arguments], keywords or {}, node, scope)


# -- functions ----------------------------------------------------------------------------------------------------


def function(
    machine: Machine, callee: Function, arguments: list[Value], keywords: dict[str, Value], node: Any, scope: Scope
) -> Value:
    facts = machine.facts
    kind = "kernel" if callee.kind == "kernel" else "call"
    machine.note(kind, scope.module.module, node, callee.dotted)
    bare = callee.qualified.rpartition(".")[2]
    for key in (callee.dotted, callee.qualified, bare):
        if key in facts.calls:
            return stdlib.answer(facts.calls[key], arguments, keywords)
    if callee.kind == "kernel":
        return Unknown(f"what {callee.dotted} computes", solid=True)
    if callee.kind == "context":
        return Unknown(f"the context {callee.dotted}", solid=True)
    if callee.dotted in facts.opaque or bare in facts.opaque or facts.skips(callee):
        return Unknown(f"what {callee.dotted} gives")
    if len(machine.active) >= facts.depth_at_most:
        return _given_up(machine, callee, node, scope, f"calls more than {facts.depth_at_most} deep")
    if machine.active.count(callee) >= RECURSION_AT_MOST:
        return _given_up(machine, callee, node, scope, "it calls itself")
    told = _key(callee, arguments, keywords) if callee.cached else None
    if told is not None and told in machine.kept:
        return machine.kept[told][0]
    inner = Scope(callee.module, callee.outer)
    inner.function = callee
    said = traits(callee.node, callee.module.module)
    inner.globals_, inner.nonlocals = said.globals_, said.nonlocals
    _bind(machine, callee, inner, arguments, keywords)
    value = _enter(machine, callee, inner)
    if told is not None and not machine.conditions:
        machine.kept[told] = (value, arguments)  # the arguments stay alive, so their identities stay theirs
    return value


def _key(callee: Function, arguments: list[Value], keywords: dict[str, Value]) -> tuple[object, ...]:
    """What a cached function tells its answers apart by: constants by value, everything else by identity."""
    return (
        id(callee),
        *(each if isinstance(each, (str, int, bool)) else id(each) for each in arguments),
        *((name, value if isinstance(value, (str, int, bool)) else id(value)) for name, value in keywords.items()),
    )


def _given_up(machine: Machine, callee: Function, node: Any, scope: Scope, why: str) -> Value:
    machine.note("not followed", scope.module.module, node, callee.dotted, value=why)
    return Unknown(f"{callee.dotted} is not followed: {why}")


def _enter(machine: Machine, callee: Function, inner: Scope) -> Value:
    node = callee.node
    if isinstance(node, ast.Lambda):
        return inside(machine, callee, lambda: Ended("return", machine.value(node.body, inner)))
    if traits(node, callee.module.module).yields:
        inner.yields = []
        inside(machine, callee, lambda: machine.block(node.body, inner))
        return inner.yields
    return inside(machine, callee, lambda: machine.block(node.body, inner))


def inside(machine: Machine, callee: Function, walk: Callable[[], Ended | None]) -> Value:
    """Walks a body, then joins the ways that returned early under something unknown."""
    waiting, level, conditions = len(machine.pending), machine.journal.level, len(machine.conditions)
    tries = len(machine.tries)
    machine.active.append(callee)
    try:
        ended = walk() or Ended("return", None)
    except Raising as error:  # not kept: it would hold on to every name of the functions that it came through
        ended = Ended("raise", error.failure)
    finally:
        machine.active.pop()
        del machine.tries[tries:]
    if len(machine.pending) == waiting:  # nobody returned early: by far the most common
        del machine.conditions[conditions:]
        machine.journal.release(level)
        if ended.kind == "raise":
            raise Raising(ended.value)
        return ended.value if ended.kind == "return" else one_of(())
    raised, failure = ended.kind == "raise", ended.value
    after, values = machine.arrive("return", waiting, ended)
    del machine.pending[waiting:]
    del machine.conditions[conditions:]
    machine.journal.release(level)
    if raised and not values:
        raise Raising(failure)
    own = [ended.value] if ended.kind == "return" and after is not None else []
    return one_of([*own, *values])


class Traits(NamedTuple):
    """What a function's body says of its names."""

    globals_: frozenset[str]
    nonlocals: frozenset[str]
    yields: bool


_PLAIN = Traits(frozenset(), frozenset(), False)


@lru_cache(maxsize=8192)
def traits(callee: ast.AST, module: Module) -> Traits:
    """Names declared global or nonlocal, and whether it is a generator. Most functions have nothing of the kind."""
    text = "\n".join(module.lines[getattr(callee, "lineno", 1) - 1 : getattr(callee, "end_lineno", 0)])
    if "global " not in text and "nonlocal " not in text and "yield" not in text:
        return _PLAIN
    nodes = own_nodes(callee)
    return Traits(
        frozenset(name for inner in nodes if isinstance(inner, ast.Global) for name in inner.names),
        frozenset(name for inner in nodes if isinstance(inner, ast.Nonlocal) for name in inner.names),
        any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in nodes),
    )


def own_nodes(node: ast.AST) -> list[ast.AST]:
    """Nodes of a function's body without those of functions and classes inside it."""
    found: list[ast.AST] = []
    todo: list[ast.AST] = list(getattr(node, "body", ())) if not isinstance(node, ast.Lambda) else [node.body]
    while todo:
        inner = todo.pop()
        found.append(inner)
        if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            todo.extend(ast.iter_child_nodes(inner))
    return found


def _bind(machine: Machine, callee: Function, inner: Scope, arguments: list[Value], keywords: dict[str, Value]) -> None:
    """Parameters get their values; what is not given and has no default is unknown."""
    spec = callee.node.args
    names, every, defaults = _parameters(spec)
    around = callee.outer or callee.module.scope
    open_ = MANY in arguments or "**" in keywords
    known = arguments[: arguments.index(MANY)] if MANY in arguments else arguments
    given = dict(zip(names, known, strict=False))
    given |= keywords if "**" not in keywords else {key: value for key, value in keywords.items() if key != "**"}
    for name in every:
        if name in given:
            inner.names[name] = given.pop(name)
        elif name in defaults and not open_:
            inner.names[name] = machine.value(defaults[name], _definer(callee, defaults[name], around))
        else:
            inner.names[name] = Unknown(f"argument {name} of {callee.qualified}")
    if spec.vararg:
        rest = tuple(known[len(names) :])
        inner.names[spec.vararg.arg] = (*rest, MANY) if MANY in arguments else rest
    if spec.kwarg:
        inner.names[spec.kwarg.arg] = given | ({MANY: MANY} if "**" in keywords else {})


def _definer(callee: Function, default: ast.expr, around: Scope) -> Scope:
    """Where a default is worked out: a method's sees the names of the class that it stands in."""
    owner = callee.owner
    if owner is None or not isinstance(default, ast.Name) or default.id not in owner.names:
        return around
    scope = Scope(callee.module, around, owner)
    scope.names = owner.names
    return scope


@lru_cache(maxsize=8192)
def _parameters(spec: ast.arguments) -> tuple[list[str], list[str], dict[str, ast.expr]]:
    """Names that take arguments by their place, all names, and the defaults of those that have one."""
    names = [each.arg for each in spec.posonlyargs + spec.args]
    defaults: dict[str, ast.expr] = dict(zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True))
    defaults |= {each.arg: value for each, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value}
    return names, [*names, *(each.arg for each in spec.kwonlyargs)], defaults
