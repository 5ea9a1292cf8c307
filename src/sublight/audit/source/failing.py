"""Failing: what importing a module runs into when some packages are not there, followed statement by statement.

A package that swallows a failing import shows nothing but a missing name, and the cause may lie modules away: here the
statements of every module on the way are gone through in Python's order, with a `try` or `suppress` dropping what it
drops. Tests that cannot be told (an environment variable, a device) count as open: what fails under one may fail.
"""

import ast
import sys
from collections.abc import Callable, Collection, Iterator

import msgspec

from sublight.audit.ladder import Proof
from sublight.audit.source.dynamic import compiled, lazily_served
from sublight.audit.source.outline import (
    absolute,
    bindings,
    is_suppress,
    is_type_checking,
    outline,
    swallows_import_error,
)
from sublight.audit.source.tree import Module, Sources

_STEPS = 3  # imports followed inside a package for what a module needs


class Failure(msgspec.Struct, frozen=True):
    """Why a name is not there.

    Attributes:
        missing: what could not be imported in the first place: a package, or "package.module.name".
        chain: imports from the asked module down to the one that failed.
        swallowed: guards on the way that hid it, innermost first; empty when the error reaches the caller.
        certain: whether it fails whenever `missing` is not there, or only if a test that was not told comes out so.
    """

    missing: str
    chain: tuple[Proof, ...]
    swallowed: tuple[Proof, ...] = ()
    certain: bool = True


class Loaded(msgspec.Struct):
    """A module after it was imported: the error that left it, or the names it lacks; `bound`: those it has."""

    error: Failure | None = None
    lost: dict[str, Failure] = msgspec.field(default_factory=dict)
    bound: set[str] = msgspec.field(default_factory=set)

    def bind(self, name: str) -> None:
        self.lost.pop(name, None)
        self.bound.add(name)

    def lose(self, name: str, failure: Failure) -> None:
        """What was bound before stays what it was: a flag that is False until an import worked."""
        if name not in self.bound:
            self.lost[name] = failure


class _Failing(Exception):  # noqa: N818 - it stands for the read program's ImportError
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.missing)
        self.failure = failure


class Loader:
    """Imports without executing.

    Args:
        sources: the packages that are followed into.
        available: whether a package or module outside of them can be imported (asked by dotted name).
        within: only these packages are followed into; without it all of `sources`.
    """

    def __init__(
        self, sources: Sources, available: Callable[[str], bool], within: Collection[str] | None = None
    ) -> None:
        self.sources = sources
        self.available = available
        self.within = sources.roots if within is None else within
        self.loaded: dict[str, Loaded] = {}

    def load(self, dotted: str) -> Loaded:
        """Imports a module, its packages first. A module that is being imported already counts as there."""
        for parent in _parents(dotted):
            state = self._one(parent)
            if state.error:
                return state
        return self._one(dotted)

    def why(self, dotted: str) -> Failure | None:
        """Why a name cannot be imported; None when nothing is against it."""
        parts = dotted.split(".")
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length])
            if self.sources.module(name) is None:
                continue
            state = self.load(name)
            if state.error or length == len(parts):
                return state.error
            return state.lost.get(parts[length])
        return None

    def _one(self, name: str) -> Loaded:
        if name in self.loaded:
            return self.loaded[name]
        state = self.loaded[name] = Loaded()
        module = self.sources.module(name)
        if module is None:
            if not self._binary(name):
                state.error = Failure(name, ())
            return state
        try:
            self._body(module, outline(module).body, state, certain=True)
        except _Failing as failed:
            state.error = failed.failure
        return state

    def _binary(self, name: str) -> bool:
        return bool(compiled(self.sources, name)) or bool(self.sources.submodules(name))

    def _body(self, module: Module, body: list[ast.stmt], state: Loaded, certain: bool) -> None:
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(module, node, state, certain)
            elif isinstance(node, ast.If):
                self._if(module, node, state, certain)
            elif isinstance(node, ast.Try):
                self._try(module, node, state, certain)
            elif isinstance(node, ast.With):
                self._with(module, node, state, certain)
            else:
                for name in _bound(node):
                    state.bind(name)

    def _import(self, module: Module, node: ast.Import | ast.ImportFrom, state: Loaded, certain: bool) -> None:
        here = Proof("source", module.at(node), ast.unparse(node).partition("\n")[0][:120])
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [absolute(module, node)]
        for name in names:
            if failure := self._fails(name):
                raise _Failing(
                    Failure(failure.missing, (here, *failure.chain), failure.swallowed, certain and failure.certain)
                )
        if isinstance(node, ast.ImportFrom):
            self._names(absolute(module, node), node, here, state, certain)
        for name in _bound(node):
            if name != "*":
                state.bind(name)

    def _fails(self, name: str) -> Failure | None:
        """Why `import name` fails, None when it works."""
        if name.partition(".")[0] not in self.within:
            return None if self.available(name) else Failure(name, ())
        return self.load(name).error

    def _names(self, base: str, node: ast.ImportFrom, here: Proof, state: Loaded, certain: bool) -> None:
        """`from base import a, b`: a name that `base` lost, and that is no submodule, fails."""
        source = self.loaded.get(base)
        if source is None:
            return
        for alias in node.names:
            lost = source.lost.get(alias.name)
            target = self.sources.module(f"{base}.{alias.name}")
            if alias.name == "*":
                for name, loss in source.lost.items():
                    if not name.startswith("_"):
                        state.lose(name, loss)
                continue
            if lost and target is None and not self._served(base, alias.name):
                raise _Failing(Failure(lost.missing, (here, *lost.chain), lost.swallowed, certain and lost.certain))
            if target is not None and (failure := self._fails(f"{base}.{alias.name}")):
                raise _Failing(
                    Failure(failure.missing, (here, *failure.chain), failure.swallowed, certain and failure.certain)
                )

    def _served(self, base: str, name: str) -> bool:
        module = self.sources.module(base)
        return module is not None and lazily_served(module, name) != ()

    def _if(self, module: Module, node: ast.If, state: Loaded, certain: bool) -> None:
        known = self._known(module, node.test)
        if known is None:
            for branch in (node.body, node.orelse):
                self._attempt(module, branch, state, None)
            return
        if known is False:
            for statement in node.body:
                for name in _bound(statement):
                    if name not in state.lost:
                        state.lose(name, self._unmet(module, node))
        self._body(module, node.body if known else node.orelse, state, certain)

    def _unmet(self, module: Module, node: ast.If) -> Failure:
        where = Proof("source", module.at(node), f"if {ast.unparse(node.test)}")
        return Failure(self._blame(module, node.test), (where,), (where,))

    def _attempt(self, module: Module, body: list[ast.stmt], state: Loaded, guard: Proof | None) -> Failure | None:
        """Goes through `body`; a failure loses the names bound from there on, for certain only under a guard."""
        for position, node in enumerate(body):
            try:
                self._body(module, [node], state, certain=guard is not None)
            except _Failing as failed:
                cause = failed.failure
                swallowed = (*cause.swallowed, guard) if guard else cause.swallowed
                loss = Failure(cause.missing, cause.chain, swallowed, cause.certain and guard is not None)
                for later in body[position:]:
                    for name in _bound(later):
                        state.lose(name, loss)
                return loss
        return None

    def _try(self, module: Module, node: ast.Try, state: Loaded, certain: bool) -> None:
        handler = next((item for item in node.handlers if swallows_import_error(item.type)), None)
        if handler is None:
            self._body(module, [*node.body, *node.orelse, *node.finalbody], state, certain)
            return
        guard = Proof("source", module.at(node), f"except {ast.unparse(handler.type) if handler.type else ''}".strip())
        failed = self._attempt(module, node.body, state, guard)
        if failed is None:
            self._body(module, node.orelse, state, certain)
        elif isinstance(handler.body[-1], ast.Raise):
            raise _Failing(failed)
        else:
            self._body(module, handler.body, state, certain)
        self._body(module, node.finalbody, state, certain)

    def _with(self, module: Module, node: ast.With, state: Loaded, certain: bool) -> None:
        if is_suppress(node):
            self._attempt(module, node.body, state, Proof("source", module.at(node), module.line(node.lineno)))
        else:
            self._body(module, node.body, state, certain)

    def _known(self, module: Module, test: ast.expr) -> bool | None:
        """What a test comes to, as far as it asks for installed packages; None when it asks for something else."""
        if is_type_checking(test):
            return False
        if isinstance(test, ast.Constant):
            return bool(test.value)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._known(module, test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            values = [self._known(module, value) for value in test.values]
            decisive = isinstance(test.op, ast.Or)
            if decisive in values:
                return decisive
            return None if None in values else not decisive
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and ast.unparse(test.comparators[0]) == "None":
            found = self._known(module, test.left)
            return found if found is None or isinstance(test.ops[0], ast.IsNot) else not found
        if isinstance(test, ast.Call):
            return self._called(module, test)
        return None

    def _called(self, module: Module, call: ast.Call) -> bool | None:
        name = ast.unparse(call.func)
        if name.endswith(("find_spec",)) and call.args and isinstance(call.args[0], ast.Constant):
            asked = str(call.args[0].value)
            if asked.partition(".")[0] in self.within:
                return self.sources.module(asked) is not None
            return self.available(asked)
        found = _returned(self.sources, module, name)
        return self._known(*found) if found else None

    def _blame(self, module: Module, test: ast.expr) -> str:
        """The package that a test misses."""
        for node in ast.walk(test):
            if isinstance(node, ast.Call):
                if (
                    ast.unparse(node.func).endswith("find_spec")
                    and node.args
                    and isinstance(node.args[0], ast.Constant)
                ):
                    if not self.available(str(node.args[0].value)):
                        return str(node.args[0].value)
                elif found := _returned(self.sources, module, ast.unparse(node.func)):
                    return self._blame(*found)
        return ast.unparse(test)


def _parents(dotted: str) -> Iterator[str]:
    parts = dotted.split(".")
    for length in range(1, len(parts)):
        yield ".".join(parts[:length])


def _bound(node: ast.stmt) -> Iterator[str]:
    """Names a statement binds, those inside its blocks too."""
    for item in ast.walk(node):
        if isinstance(item, ast.alias):
            yield item.asname or item.name.partition(".")[0]
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield item.name
        elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            yield item.id


def _returned(sources: Sources, module: Module, name: str) -> tuple[Module, ast.expr] | None:
    """The expression that a function of this name returns, when that is all it does, and the module it stands in."""
    from sublight.audit.source.symbols import resolve

    if not name.isidentifier():
        return None
    home = resolve(sources, f"{module.name}.{name}")
    place = sources.module(home.home.rpartition(".")[0]) if home.kind == "function" else None
    for node in place.tree.body if place else ():
        if isinstance(node, ast.FunctionDef) and node.name == home.home.rpartition(".")[2] and place:
            body = [
                item for item in node.body if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
            ]
            if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
                return place, body[0].value
    return None


def explain(sources: Sources, dotted: str, available: Callable[[str], bool]) -> Failure | None:
    """Why `dotted` cannot be imported when only what `available` says is installed; None when nothing is against it."""
    return Loader(sources, available).why(dotted)


def outside(sources: Sources, dotted: str) -> dict[str, Proof]:
    """Packages outside of `sources` that importing one module takes, with the line that asks for each.

    Modules of its own that it imports are looked into, a few steps deep; what stands under a test or a guard may fail
    and is left out, and so is the package's own `__init__`, which is a question about the package.
    """
    found: dict[str, Proof] = {}
    seen: set[str] = set()
    level = [dotted]
    for _ in range(_STEPS):
        following: list[str] = []
        for name in level:
            module = sources.module(name)
            if module is None or name in seen:
                continue
            seen.add(name)
            for binding in (item for bound in bindings(module).values() for item in bound):
                if not binding.target or binding.guard or binding.conditions or binding.fallback:
                    continue
                top = binding.target.partition(".")[0]
                if top in sources.roots:
                    following += [binding.target, binding.target.rpartition(".")[0]]
                elif top not in sys.stdlib_module_names:
                    line = module.line(binding.node.lineno)
                    found.setdefault(top, Proof("source", module.at(binding.node), line))
        level = [name for name in following if name != dotted.partition(".")[0]]
    return found
