"""The walk behind `cards`: calls are followed from a function for one compute capability; what asks for it is noted.

Nothing is known but the capability and constants. A test that is known takes its side; any other is walked on both, and
what is asked there is not sure. What it leaves behind, a name, an attribute or a returned value, is known where both
sides agree on it. Everything the walk does not understand is unknown.
"""

import ast
from collections.abc import Mapping
from typing import Any

import msgspec

from sublight.audit.source.arithmetic import UNKNOWN, Asked, value_of
from sublight.audit.source.cardvalues import Method, Package, Reference, Scope, Thing, identity, merge, same
from sublight.audit.source.outline import bindings, definition
from sublight.audit.source.symbols import resolve
from sublight.audit.source.tree import Module, Sources

Capability = tuple[int, int]

_ENTERED_AT_MOST = 500  # functions, for one capability
_DEEPEST = 16
_ASKS = ("get_compute_capability", "get_device_capability")
_RUN = ("__call__", "forward", "run")  # what is called of an object that is handed to others

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Question(msgspec.Struct, frozen=True):
    """One place that asks for the card.

    Attributes:
        where, text: the line, and the condition as it stands there.
        kind: "assert" (which `python -O` leaves out), "raise" or "flags" (what a build is made for).
        sure: whether it is asked whatever else holds; otherwise some test on the way is not told.
        chain: where the chain of `if` and `elif` begins that it belongs to: the others of it let other cards through.
    """

    where: str
    text: str
    kind: str
    sure: bool = True
    chain: str = ""


class Walk:
    """One capability's way through the calls. `asked` maps each question to whether this capability passes.

    Args:
        inert: calls during which nobody looked at the card, and what they returned: shared by the walks of all cards.
    """

    def __init__(self, sources: Sources, capability: Capability, inert: "dict[Any, _Done] | None" = None) -> None:
        self.inert = {} if inert is None else inert
        self.looks = 0  # at something that follows from the card
        self.calls = 0
        self.sources = sources
        self.capability = capability
        self.asked: dict[Question, bool] = {}
        self.entered: dict[Any, _Done] = {}
        self.constants: dict[ast.expr, Any] = {}
        self.chains: dict[int, str] = {}  # an `elif` -> where its chain begins
        self.open = 0  # tests on the way that are not told
        self.depth = 0
        self.perhaps: list[Any] = []  # what the function that is walked may have returned before, on some way
        self.written: list[tuple[Thing, str, Any]] = []  # attributes that were set, and what each was before

    def ask(self, module: Module, node: ast.AST, text: str, kind: str, passes: bool) -> None:
        question = Question(module.at(node), text, kind, self.open == 0, self.chains.get(id(node), module.at(node)))
        self.asked[question] = self.asked.get(question, True) and passes

    # -- functions ----------------------------------------------------------------------------------------------

    def enter(self, function: Reference, arguments: list[Any], keywords: Mapping[str, Any], this: Any = None) -> Any:
        """The value a call returns, as far as it is known."""
        node = function.node
        if not isinstance(node, Function) or self.depth > _DEEPEST or len(self.entered) > _ENTERED_AT_MOST:
            return UNKNOWN
        names = _parameters(node, [*([this] if this is not None else []), *arguments], keywords)
        if self.depth == 0:  # whoever calls from outside may give other values than the defaults
            names = {name: UNKNOWN if isinstance(value, Asked) else value for name, value in names.items()}
        key = (id(node), self.open == 0, tuple((name, identity(value)) for name, value in names.items()))
        known = self.inert.get(key) or self.entered.get(key)
        if known is not None:
            for name, value in known.left.items():
                self.set(this, name, value)
            return known.value
        self.entered[key] = _Done(UNKNOWN, {})
        looks, mark = self.looks, len(self.written)
        self.depth += 1
        opened, perhaps = self.open, self.perhaps
        self.perhaps = []
        try:
            returned = self.block(node.body, Scope(function.module, names, function.outer))
            value = returned.value if isinstance(returned, _Returned) else Asked(None, False)
            left = {name: thing.attributes[name] for thing, name, _ in self.written[mark:] if thing is this}
            self.entered[key] = _Done(same((value, *self.perhaps)), left)
        finally:
            self.depth -= 1
            self.open, self.perhaps = opened, perhaps
        if self.looks == looks:
            self.inert[key] = self.entered[key]
        return self.entered[key].value

    def block(self, body: list[ast.stmt], scope: Scope) -> "_Returned | None":
        opened = self.open
        for node in body:
            ended = self.statement(node, scope)
            if ended is not None:
                return ended
        self.open = max(self.open, opened)
        return None

    def statement(self, node: ast.stmt, scope: Scope) -> "_Returned | None":
        if isinstance(node, ast.If):
            return self.branch(node, scope)
        if isinstance(node, ast.Assert):
            value = self.value(node.test, scope)
            if isinstance(value, Asked) and value.card:
                self.ask(scope.module, node, ast.unparse(node.test), "assert", bool(value.value))
        elif isinstance(node, ast.Return):
            return _Returned(self.value(node.value, scope) if node.value else Asked(None, False))
        elif isinstance(node, ast.Raise):
            return _Returned(UNKNOWN, raised=True)
        elif isinstance(node, Function | ast.ClassDef):
            scope.names[node.name] = Reference(scope.module, node, scope)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imported(node, scope)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self.assigned(node, scope)
        elif isinstance(node, ast.For | ast.While | ast.With | ast.Try):
            return self.compound(node, scope)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child, scope)
        return None

    def compound(self, node: ast.For | ast.While | ast.With | ast.Try, scope: Scope) -> "_Returned | None":
        """Loops once, with unknown loop variables; of a `try` only what is tried."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.withitem):
                self.value(child.context_expr, scope)
            elif isinstance(child, ast.expr) and not isinstance(node, ast.For):
                self.value(child, scope)
        if isinstance(node, ast.For):
            self.value(node.iter, scope)
            self.bind(node.target, UNKNOWN, scope)
        loops = isinstance(node, ast.For | ast.While)
        before = dict(scope.names) if loops else {}
        self.open += loops
        ended = self.block(node.body, scope)
        self.open -= loops
        merge(scope.names, before)
        if not loops and not isinstance(node, ast.Try):
            return ended
        self.left(ended)
        return None

    def left(self, ended: "_Returned | None") -> None:
        """A way that may have been taken: when it returns, what follows is reached only if it was not."""
        if ended is not None and not ended.raised:
            self.perhaps.append(ended.value)
            self.open += 1

    def branch(self, node: ast.If, scope: Scope) -> "_Returned | None":
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            self.chains[id(node.orelse[0])] = self.chains.get(id(node), scope.module.at(node))
        value = self.value(node.test, scope)
        if isinstance(value, Asked):
            taken, other = (node.body, node.orelse) if value.value else (node.orelse, node.body)
            if value.card:
                self.decided(node, scope, bool(value.value), taken, other)
            return self.block(taken, scope)
        before, mark = dict(scope.names), len(self.written)
        self.open += 1
        first = self.block(node.body, scope)
        after, scope.names = scope.names, before
        left = self.taken_back(mark)
        second = self.block(node.orelse, scope)
        self.open -= 1
        merge(scope.names, after)
        before_it = {(id(thing), name): (thing, name, old) for thing, name, old in reversed(self.written[mark:])}
        for thing, name, value in (before_it | left).values():
            self.set(thing, name, same((value, thing.attributes[name])))
        if first is not None and second is not None:
            return _Returned(UNKNOWN, first.raised and second.raised)
        for ended in (first, second):
            self.left(ended)
        return None

    def set(self, thing: Thing, name: str, value: Any) -> None:
        self.written.append((thing, name, thing.attributes.get(name, UNKNOWN)))
        thing.attributes[name] = value

    def taken_back(self, mark: int) -> dict[tuple[int, str], tuple[Thing, str, Any]]:
        """Undoes what was set since then; gives what it came to. What was not there before is not known from then."""
        undone = self.written[mark:]
        del self.written[mark:]
        values = {(id(thing), name): (thing, name, thing.attributes[name]) for thing, name, _ in undone}
        for thing, name, old in reversed(undone):
            thing.attributes[name] = old
        return values

    def decided(self, node: ast.If, scope: Scope, holds: bool, taken: list[ast.stmt], other: list[ast.stmt]) -> None:
        """A test of the capability: a gate when one of its sides refuses."""
        text = ast.unparse(node.test)
        if _refuses(taken):
            self.ask(scope.module, node, f"not ({text})" if holds else text, "raise", False)
        elif _refuses(other) or _refuses(_last_else(other)):
            self.ask(scope.module, node, text if holds else f"not ({text})", "raise", True)

    # -- names and values ---------------------------------------------------------------------------------------

    def imported(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                base = self.sources.absolute(scope.module, node.module, node.level)
                scope.names[alias.asname or alias.name] = Package(f"{base}.{alias.name}")
            else:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                scope.names[alias.asname or name] = Package(name)

    def assigned(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, scope: Scope) -> None:
        value = self.value(node.value, scope) if node.value else UNKNOWN
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self.bind(target, UNKNOWN if isinstance(node, ast.AugAssign) else value, scope)

    def bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.value if isinstance(value, Asked) and isinstance(value.value, list | tuple) else ()
            for position, item in enumerate(target.elts):
                fits = len(parts) == len(target.elts)
                self.bind(item, Asked(parts[position], value.card) if fits else UNKNOWN, scope)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = scope.find(target.value.id)
            if isinstance(owner, Thing):
                self.set(owner, target.attr, value)

    def value(self, node: ast.expr, scope: Scope) -> Any:
        found = value_of(node, lambda name: self.named(name, scope), lambda item: self.other(item, scope))
        if isinstance(found, Asked) and found.card:
            self.looks += 1
        return found

    def named(self, name: str, scope: Scope) -> Any:
        found = scope.find(name)
        if found is not None:
            return found
        for binding in reversed(bindings(scope.module).get(name, ())):
            if binding.value is not None:
                return self.constant(binding.value, scope.module)
            if binding.target:
                return Package(binding.target)
            return Reference(scope.module, self.full(scope.module, name))
        return UNKNOWN

    def constant(self, node: ast.expr, module: Module) -> Any:
        """A value of the module level, worked out once where it neither calls anything nor follows from the card."""
        if node not in self.constants:
            before = self.looks, self.calls
            found = self.value(node, Scope(module, {}))
            if (self.looks, self.calls) != before:
                return found
            self.constants[node] = found
        return self.constants[node]

    def full(self, module: Module, name: str) -> ast.AST:
        """The definition with its body."""
        return definition(module, name) or ast.Pass()

    def other(self, node: ast.expr, scope: Scope) -> Any:
        """Attributes and calls."""
        if isinstance(node, ast.Attribute):
            base = self.value(node.value, scope)
            if isinstance(base, Thing):
                return base.attributes.get(node.attr, self.method(base, node.attr))
            return Package(f"{base.dotted}.{node.attr}") if isinstance(base, Package) else UNKNOWN
        if isinstance(node, ast.Call):
            return self.called(node, scope)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, scope)
        return UNKNOWN

    def method(self, thing: Thing, name: str) -> Any:
        node = thing.of.node
        for item in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(item, Function) and item.name == name:
                return Method(thing, Reference(thing.of.module, item, thing.of.outer))
        return UNKNOWN

    def called(self, node: ast.Call, scope: Scope) -> Any:
        self.calls += 1
        arguments = [self.value(item.value if isinstance(item, ast.Starred) else item, scope) for item in node.args]
        keywords = {item.arg: self.value(item.value, scope) for item in node.keywords if item.arg}
        last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if last in _ASKS:
            return Asked(self.capability, True)
        majors = keywords.get("supported_major_versions")
        if isinstance(majors, Asked) and isinstance(majors.value, list):
            self.looks += 1
            text = f"supported_major_versions={majors.value}"
            self.ask(scope.module, node, text, "flags", self.capability[0] in majors.value)
            return UNKNOWN
        return self.apply(self.value(node.func, scope), arguments, keywords)

    def apply(self, callee: Any, arguments: list[Any], keywords: Mapping[str, Any]) -> Any:
        if isinstance(callee, Package):
            callee = self.looked_up(callee.dotted)
        if isinstance(callee, Method):
            return self.enter(callee.function, arguments, keywords, callee.thing)
        if isinstance(callee, Thing):
            run = self.method(callee, "__call__")
            return self.enter(run.function, arguments, keywords, callee) if isinstance(run, Method) else UNKNOWN
        if isinstance(callee, Reference) and isinstance(callee.node, ast.ClassDef):
            return self.made(callee, arguments, keywords)
        if isinstance(callee, Reference):
            return self.enter(callee, arguments, keywords)
        for argument in [*arguments, *keywords.values()]:
            if isinstance(argument, Thing):
                self.handed(argument)
        return UNKNOWN

    def looked_up(self, dotted: str) -> Any:
        if dotted.partition(".")[0] not in self.sources.roots:
            return UNKNOWN
        found = resolve(self.sources, dotted)
        module = self.sources.module(found.home.rpartition(".")[0]) if found.found else None
        if module is None or found.kind not in ("function", "class"):
            return UNKNOWN
        return Reference(module, self.full(module, found.home.rpartition(".")[2]))

    def made(self, cls: Reference, arguments: list[Any], keywords: Mapping[str, Any]) -> Thing:
        thing = Thing(cls, {})
        start = self.method(thing, "__init__")
        if isinstance(start, Method):
            self.enter(start.function, arguments, keywords, thing)
        return thing

    def handed(self, thing: Thing) -> None:
        """An object that goes to code outside (a compiler, a tuner) is run there."""
        for name in _RUN:
            run = self.method(thing, name)
            if isinstance(run, Method):
                self.enter(run.function, [], {}, thing)


class _Done(msgspec.Struct, frozen=True):
    """What a call came to: its value, and the attributes that it left on its object."""

    value: Any
    left: dict[str, Any]


class _Returned(msgspec.Struct, frozen=True):
    value: Any
    raised: bool = False


def _parameters(node: Function, arguments: list[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    spec = node.args
    positional = [*spec.posonlyargs, *spec.args]
    names: dict[str, Any] = {item.arg: UNKNOWN for item in [*positional, *spec.kwonlyargs]}
    defaults = zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True)
    for parameter, default in [*defaults, *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]:
        if isinstance(default, ast.Constant):
            names[parameter.arg] = Asked(default.value, False)
    names.update({item.arg: value for item, value in zip(positional, arguments, strict=False)})
    names.update({name: value for name, value in keywords.items() if name in names})
    return names


def _refuses(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _last_else(body: list[ast.stmt]) -> list[ast.stmt]:
    """What stands behind the last `else` of a chain of `elif`."""
    while len(body) == 1 and isinstance(body[0], ast.If):
        body = body[0].orelse
    return body
