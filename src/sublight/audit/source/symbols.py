"""Symbols: whether a dotted name exists, read from source alone, by the chain of lines that leads to its definition.

"The import works" and "the symbol is there" are different questions, and both are answered here without running
anything: module by module from the left, through re-exports, aliases, star imports and a module's own `__getattr__`.
What cannot be seen (a compiled module, names made at run time) is not known, and says why.
"""

import ast
from enum import StrEnum

import msgspec

from sublight.audit.ladder import Proof
from sublight.audit.source.dynamic import compiled, lazily_served, made_at_run_time
from sublight.audit.source.outline import Binding, bindings
from sublight.audit.source.tree import Module, Sources

_FURTHEST = 40  # re-exports followed before a chain is called endless
_EVERY_MODULE = {"__file__", "__name__", "__spec__", "__loader__", "__package__", "__dict__", "__doc__"}


class Existence(StrEnum):
    FOUND = "found"
    CONDITIONAL = "conditional"  # there, but under a test, or under a guard that may swallow it
    MISSING = "missing"
    NOT_KNOWN = "not known"


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a dotted name.

    Attributes:
        asked: the name.
        existence: see above.
        why: a sentence.
        home: where it is defined, dotted; "" when it was not found.
        kind: "function", "class", "module", "value", "compiled module", "lazy name".
        chain: the lines that lead there: re-exports first, the definition last.
        conditions: tests and guards on the way.
        prefix: the longest part of the name that exists.
    """

    asked: str
    existence: Existence
    why: str
    home: str = ""
    kind: str = ""
    chain: tuple[Proof, ...] = ()
    conditions: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def found(self) -> bool:
        return self.existence in (Existence.FOUND, Existence.CONDITIONAL)


class _Trail:
    """The state of one question."""

    def __init__(self, sources: Sources, asked: str) -> None:
        self.sources = sources
        self.asked = asked
        self.chain: list[Proof] = []
        self.conditions: list[str] = []
        self.seen: set[tuple[str, tuple[str, ...]]] = set()

    def done(self, existence: Existence, why: str, *, home: str = "", kind: str = "", prefix: str = "") -> Resolution:
        if existence is Existence.FOUND and self.conditions:
            existence, why = Existence.CONDITIONAL, f"{why}, if {'; '.join(dict.fromkeys(self.conditions))}"
        return Resolution(
            asked=self.asked,
            existence=existence,
            why=why,
            home=home,
            kind=kind,
            chain=tuple(self.chain),
            conditions=tuple(dict.fromkeys(self.conditions)),
            prefix=prefix,
        )

    def walk(self, dotted: str, steps: int = 0) -> Resolution:
        """Resolves `dotted`, from its longest prefix of modules on."""
        parts = dotted.split(".")
        module = self.sources.module(parts[0])
        if module is None:
            if parts[0] not in self.sources.roots:
                return self.done(Existence.NOT_KNOWN, f"the source of {parts[0]} is not here")
            if binary := compiled(self.sources, parts[0]):
                return self._compiled(parts[0], binary, parts[1:])
            return self.done(Existence.MISSING, f"there is no module {parts[0]}")
        return self.inside(module, parts[1:], steps)

    def inside(self, module: Module, rest: list[str], steps: int) -> Resolution:
        """Resolves `rest` in the namespace of `module`."""
        if not rest:
            where = module.shown if module.shown.endswith("/") else f"{module.shown}:1"
            self.chain.append(Proof("source", where, f"module {module.name}"))
            return self.done(Existence.FOUND, f"the module {module.name} is there", home=module.name, kind="module")
        key = (module.name, tuple(rest))
        if key in self.seen or steps > _FURTHEST:
            return self.done(
                Existence.NOT_KNOWN, f"{module.name} and its re-exports lead in a circle", prefix=module.name
            )
        self.seen.add(key)
        if module.error:
            return self.done(Existence.NOT_KNOWN, module.error, prefix=module.name)
        name = rest[0]
        if name in _EVERY_MODULE:
            return self.done(Existence.FOUND, f"every module has {name}", home=f"{module.name}.{name}", kind="value")
        submodule = self.sources.module(f"{module.name}.{name}") if module.is_package else None
        if submodule is not None and (len(rest) > 1 or name not in bindings(module)):
            return self.inside(submodule, rest[1:], steps + 1)
        if name in bindings(module):
            return self.bound(module, bindings(module)[name], rest, steps)
        return self.unbound(module, rest, steps)

    def bound(self, module: Module, found: list[Binding], rest: list[str], steps: int) -> Resolution:
        """The last unconditional statement decides; without one, the first that does not stand in an `except`."""
        certain = [item for item in found if not item.conditions and not item.guard and not item.fallback]
        proper = [item for item in found if not item.fallback]
        binding = certain[-1] if certain else (proper or found)[0]
        if not certain:
            self._note(module, binding)
        where = module.at(binding.node)
        self.chain.append(Proof("source", where, self._text(module, binding, rest[0])))
        node = binding.node
        home = f"{module.name}.{rest[0]}"
        if binding.target == home and (submodule := self.sources.module(home)):  # from . import submodule
            return self.inside(submodule, rest[1:], steps + 1)
        if binding.target:
            return self.walk(".".join([binding.target, *rest[1:]]), steps + 1)
        if isinstance(node, ast.ClassDef):
            return self.member(module, _whole(module, node) if rest[1:] else node, home, rest[1:], steps)
        if len(rest) == 1:
            kind = "function" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else "value"
            alias = _dotted(binding.value)
            if alias and alias.partition(".")[0] in bindings(module) and alias != rest[0]:
                return self.inside(module, alias.split("."), steps + 1)
            return self.done(Existence.FOUND, f"{home} is defined at {where}", home=home, kind=kind)
        why = f"{home} ({where}) gets its attributes at run time"
        return self.done(Existence.NOT_KNOWN, why, home=home, prefix=home)

    def member(self, module: Module, node: ast.ClassDef, home: str, rest: list[str], steps: int) -> Resolution:
        """`rest` in the body of a class, nested classes included, then in its bases."""
        if not rest:
            where = module.at(node)
            return self.done(Existence.FOUND, f"{home} is defined at {where}", home=home, kind="class")
        item = _bound_in(node, rest[0])
        if item is not None:
            self.chain.append(Proof("source", module.at(item), module.line(item.lineno)))
            inner = f"{home}.{rest[0]}"
            if isinstance(item, ast.ClassDef):
                return self.member(module, item, inner, rest[1:], steps)
            if len(rest) > 1:
                why = f"{inner} ({module.at(item)}) gets its attributes at run time"
                return self.done(Existence.NOT_KNOWN, why, home=inner, prefix=inner)
            kind = "function" if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) else "value"
            return self.done(Existence.FOUND, f"{home} has {rest[0]}", home=inner, kind=kind)
        for base in node.bases:
            if (name := _dotted(base)) and name.partition(".")[0] in bindings(module):
                inherited = self.inside(module, [*name.split("."), *rest], steps + 1)
                if inherited.found:
                    return inherited
        return self.done(Existence.NOT_KNOWN, f"{home} does not define {rest[0]} itself", home=home, prefix=home)

    def unbound(self, module: Module, rest: list[str], steps: int) -> Resolution:
        """No statement of the module binds the name: star imports, `__getattr__`, compiled modules, or nothing."""
        name = rest[0]
        for binding in bindings(module).get("*", ()):
            if not name.startswith("_") or name in _exported(self.sources.module(binding.target)):
                self.chain.append(Proof("source", module.at(binding.node), f"from {binding.target} import *"))
                starred = self.walk(".".join([binding.target, *rest]), steps + 1)
                if starred.found:
                    return starred
                self.chain.pop()
        if binary := compiled(self.sources, f"{module.name}.{name}") if module.is_package else "":
            return self._compiled(f"{module.name}.{name}", binary, rest[1:])
        if served := lazily_served(module, name):
            return self._lazy(module, served.line, served.target, rest, steps)
        if "__getattr__" in bindings(module) and lazily_served(module, name) is None:
            where = module.at(bindings(module)["__getattr__"][-1].node)
            self.chain.append(Proof("source", where, "def __getattr__"))
            return self.done(
                Existence.NOT_KNOWN, f"{module.name} makes names in a __getattr__ that lists none", prefix=module.name
            )
        if line := made_at_run_time(module):
            self.chain.append(Proof("source", f"{module.shown}:{line}", module.line(line)))
            return self.done(Existence.NOT_KNOWN, f"{module.name} makes names at run time", prefix=module.name)
        return self.done(Existence.MISSING, f"{module.name} ({module.shown}) has no {name}", prefix=module.name)

    def _lazy(self, module: Module, line: int, target: str, rest: list[str], steps: int) -> Resolution:
        self.chain.append(Proof("source", f"{module.shown}:{line}", module.line(line)))
        home = f"{module.name}.{rest[0]}"
        for candidate in (f"{target}.{rest[0]}", target) if target else ():
            if candidate != home and candidate.rpartition(".")[2] == rest[0]:
                followed = _Trail(self.sources, self.asked).walk(".".join([candidate, *rest[1:]]), steps + 1)
                if followed.found:
                    self.chain += followed.chain
                    self.conditions += followed.conditions
                    return self.done(Existence.FOUND, followed.why, home=followed.home, kind=followed.kind)
        return self.done(Existence.FOUND, f"{module.name}.__getattr__ serves {rest[0]}", home=home, kind="lazy name")

    def _compiled(self, name: str, binary: str, rest: list[str]) -> Resolution:
        self.chain.append(Proof("file", binary, f"compiled module {name}"))
        if not rest:
            return self.done(Existence.FOUND, f"{name} is compiled: {binary}", home=name, kind="compiled module")
        why = f"{name} is compiled ({binary}): its names show only when it is loaded"
        return self.done(Existence.NOT_KNOWN, why, home=name, kind="compiled module", prefix=name)

    def _note(self, module: Module, binding: Binding) -> None:
        self.conditions += [f"{test} ({module.at(binding.node)})" for test in binding.conditions]
        if binding.guard:
            self.conditions.append(f"nothing under {module.shown}:{binding.guard} fails to import")

    @staticmethod
    def _text(module: Module, binding: Binding, name: str) -> str:
        node = binding.node
        if isinstance(node, ast.ImportFrom):
            return f"from {'.' * node.level}{node.module or ''} import {name}"
        return module.line(node.lineno)


def _dotted(node: ast.expr | None) -> str:
    """ "a.b" for an expression that is just names and dots, "" for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := _dotted(node.value)):
        return f"{head}.{node.attr}"
    return ""


def _whole(module: Module, node: ast.ClassDef) -> ast.ClassDef:
    """The class with its body, which an outline leaves out."""
    for found in ast.walk(module.tree):
        if isinstance(found, ast.ClassDef) and (found.name, found.lineno) == (node.name, node.lineno):
            return found
    return node


def _bound_in(node: ast.ClassDef, name: str) -> ast.stmt | None:
    """The statement of a class that binds a name, the last one where there are several."""
    for item in reversed(node.body):
        targets = [*getattr(item, "targets", ()), getattr(item, "target", None)]
        if name in [getattr(item, "name", ""), *(getattr(target, "id", "") for target in targets)]:
            return item
    return None


def _exported(module: Module | None) -> set[str]:
    """Names of a literal `__all__`."""
    if module is None:
        return set()
    values = [binding.value for binding in bindings(module).get("__all__", ())]
    return {
        item.value
        for value in values
        if isinstance(value, ast.List | ast.Tuple)
        for item in value.elts
        if isinstance(item, ast.Constant) and isinstance(item.value, str)
    }


def resolve(sources: Sources, dotted: str) -> Resolution:
    """Whether `dotted` exists in the packages of `sources`, and by which lines."""
    if dotted.endswith(".*"):
        dotted = dotted.removesuffix(".*")
    if not all(part.isidentifier() for part in dotted.split(".")):
        return Resolution(asked=dotted, existence=Existence.MISSING, why=f"{dotted!r} is not a dotted name")
    return _Trail(sources, dotted).walk(dotted)
