"""Modules of the read program: a name is worked out when somebody asks for it, from the statements that bind it.

Top-level statements are run one at a time and at most once, those that bind the wanted name only, so reading one
function of a module of thousands of lines costs what that function needs.
"""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from weakref import WeakKeyDictionary

from sublight.audit.source.journal import Journal
from sublight.audit.source.machine import Machine, Raising
from sublight.audit.source.outline import outline, whole
from sublight.audit.source.reached import imported
from sublight.audit.source.tree import Module
from sublight.audit.source.values import MISSING, External, Function, Lazy, Namespace, Unknown, Value

_INDEXES: "WeakKeyDictionary[Module, dict[str, list[int]]]" = WeakKeyDictionary()


def followed(machine: Machine, dotted: str) -> bool:
    return dotted.partition(".")[0] in machine.facts.follow


def space(machine: Machine, dotted: str) -> Namespace | None:
    """The module of that name, or None when the sources hold no such module."""
    if dotted not in machine.spaces:
        module = machine.sources.module(dotted) if followed(machine, dotted) else None
        machine.spaces[dotted] = Namespace(module) if module else None
    found = machine.spaces[dotted]
    if found is not None and not found.loads:
        found.loads = True
        _register(machine, found)
    return found


def lookup(machine: Machine, namespace: Namespace, name: str) -> Value:
    """What a module calls `name`; MISSING when it has no such name."""
    if name in namespace.written:
        return _settled(machine, namespace.written, name)
    known = machine.facts.values.get(f"{namespace.name}.{name}", MISSING)
    if known is not MISSING:
        return known
    places = index(machine, namespace).get(name, ())
    if namespace.running:  # a statement sees what stands before it
        places = [at for at in places if at < namespace.running[-1]] or places
    for at in places:
        if at not in namespace.done:
            _in_order(machine, namespace, at)
    if name in namespace.names:
        return _settled(machine, namespace.names, name)
    if name == "__name__":
        return namespace.name
    if name == "__file__":
        return namespace.module.shown  # from the package on: where that lies is nothing a program decides by
    found = _starred(machine, namespace, name)
    return Unknown(namespace.module.error, solid=True) if found is MISSING and namespace.module.error else found


def _in_order(machine: Machine, namespace: Namespace, at: int) -> None:
    """Runs a statement. One that sets an attribute comes after everything that stands before it, as in the program.

    One with others inside comes after those before it that bind the same names: they would undo what it binds.
    """
    node = outline(namespace.module).body[at]
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        namespace.done.add(at)
        for before in range(at):
            if before not in namespace.done:
                run_top(machine, namespace, before)
    elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For)):
        namespace.done.add(at)
        places = index(machine, namespace)
        for before in sorted({place for name in bound(node) for place in places[name] if place < at}):
            if before not in namespace.done:
                _in_order(machine, namespace, before)
    run_top(machine, namespace, at)


def _settled(machine: Machine, names: dict[str, Value], name: str) -> Value:
    value = names[name]
    if isinstance(value, Lazy):
        value = resolve(machine, value)
        if value is not MISSING:
            names[name] = value
    return value


def resolve(machine: Machine, lazy: Lazy) -> Value:
    """What `from module import name` gives; unknown when the module has no such name that can be read."""
    found = space(machine, lazy.module)
    if found is None:
        child = space(machine, f"{lazy.module}.{lazy.name}") if lazy.name else None
        return child or External(f"{lazy.module}.{lazy.name}" if lazy.name else lazy.module)
    if not lazy.name:
        return found
    wanted = (lazy.module, lazy.name)
    if wanted in machine.resolving:  # modules that import each other: the name may be that of a module inside
        return space(machine, f"{lazy.module}.{lazy.name}") or MISSING
    machine.resolving.add(wanted)
    try:
        value = lookup(machine, found, lazy.name)
    finally:
        machine.resolving.discard(wanted)
    if value is MISSING:
        child = space(machine, f"{lazy.module}.{lazy.name}")
        return child or _served(machine, found, lazy.name)
    return value


def _served(machine: Machine, namespace: Namespace, name: str) -> Value:
    """What the module's own `__getattr__` gives."""
    hook = lookup(machine, namespace, "__getattr__")
    if isinstance(hook, Function):
        try:
            return machine.call(hook, [name], {}, hook.node, namespace.scope)
        except Raising:
            pass
    return Unknown(f"{namespace.name} has no {name} that can be read")


def _starred(machine: Machine, namespace: Namespace, name: str) -> Value:
    if name.startswith("_"):
        return MISSING
    for at in index(machine, namespace).get("*", ()):
        node = outline(namespace.module).body[at]
        if isinstance(node, ast.ImportFrom):
            origin = machine.sources.absolute(namespace.module, node.module, node.level)
            other = space(machine, origin)
            if other is None or other is namespace:
                continue
            value = lookup(machine, other, name)
            if value is not MISSING:
                return value
    return MISSING


def run_top(machine: Machine, namespace: Namespace, at: int) -> None:
    """Runs one top-level statement, apart from whatever is going on."""
    namespace.done.add(at)
    module = namespace.module
    node = whole(module, at)
    if node is None:
        machine.note("not followed", module, outline(module).body[at], module.name, value=module.error)
        return
    namespace.running.append(at)
    kept = machine.journal, machine.conditions, machine.pending, machine.active, machine.tries, machine.handled
    machine.journal, machine.conditions, machine.pending = Journal(machine.returns), [], []
    machine.active, machine.tries, machine.handled = [], [], []
    try:
        machine.block([node], namespace.scope)
    except Raising:
        pass  # the event says it; what the statement would have bound stays missing
    finally:
        namespace.running.pop()
        machine.journal, machine.conditions, machine.pending = kept[:3]
        machine.active, machine.tries, machine.handled = kept[3:]


def _register(machine: Machine, namespace: Namespace) -> None:
    """Runs what a module, and every module that is loaded along with it, registers."""
    registers = machine.facts.registers
    if not registers:
        return
    todo = [namespace.name]
    while todo:
        name = todo.pop()
        if name in machine.reached:
            continue
        machine.reached.add(name)
        module = machine.sources.module(name)
        if module is None:
            continue
        todo.extend(imported(machine.sources, module))
        if _decorating(registers).search(module.text):
            machine.spaces[name] = machine.spaces.get(name) or Namespace(module)
            _run_registering(machine, machine.spaces[name], registers)


@lru_cache(maxsize=16)
def _decorating(names: frozenset[str]) -> re.Pattern[str]:
    """Text in which one of these may be a decorator."""
    return re.compile("@(?:" + "|".join(re.escape(name) for name in sorted(names)) + ")")


def _run_registering(machine: Machine, namespace: Namespace | None, registers: frozenset[str]) -> None:
    if namespace is None:
        return
    namespace.loads = True
    for at, node in enumerate(outline(namespace.module).body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and at not in namespace.done:
            names = {last_name(decorator) for decorator in node.decorator_list}
            if names & registers:
                run_top(machine, namespace, at)


def last_name(node: ast.expr) -> str:
    """The last part of a decorator's name: "jit" of `@triton.jit(...)`."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def index(machine: Machine, namespace: Namespace) -> dict[str, list[int]]:
    """Name -> the top-level statements that bind or edit it."""
    if namespace.index is not None:
        return namespace.index
    module = namespace.module
    found = namespace.index = _INDEXES.get(module)
    if found is None:
        found = namespace.index = {}
        for at, node in enumerate(outline(module).body):
            for name in dict.fromkeys(bound(node)):
                found.setdefault(name, []).append(at)
        _INDEXES[module] = found
        if module.error:
            machine.note("not followed", module, module.tree, module.name, value=module.error)
    return found


def bound(node: ast.stmt) -> Iterator[str]:
    """Names that a statement binds, or whose value it edits (`NAMES.append(...)`, `NAMES[k] = ...`)."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or (alias.name.partition(".")[0] if isinstance(node, ast.Import) else alias.name)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        if node.value is not None:
            yield from _targets(node.target)
    elif isinstance(node, ast.Expr):
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            yield from _targets(call.func.value)
    else:
        yield from _inside(node)


def _inside(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.For, ast.AsyncFor)):
        yield from _targets(node.target)
    for field in ("body", "orelse", "finalbody"):
        for child in getattr(node, field, ()):
            yield from bound(child)
    for handler in getattr(node, "handlers", ()):
        for child in handler.body:
            yield from bound(child)


def _targets(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from _targets(item)
    elif isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        yield from _targets(node.value)
