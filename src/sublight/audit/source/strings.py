"""Imports named in strings: `import_module("a.b")`, `find_spec`, wrappers around them, and tables of such names.

Only an argument of a function that imports is a name. Which functions those are is read from the module: one that hands
a parameter on to `import_module` is one itself, and so on. A pair ("a.b", "c") is a symbol where a loop hands its first
half to such a function and asks the result for its second.
"""

import ast
import re
from collections.abc import Iterator

import msgspec

from sublight.audit.source.tree import Module

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ENTRY = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Importer(msgspec.Struct, frozen=True):
    """Which argument of a function names a module, and which a name in it (-1: none)."""

    module: int = 0
    name: int = -1


_KNOWN = {
    "import_module": Importer(),
    "find_spec": Importer(),
    "__import__": Importer(),
    "_lazy_import_wrapper": Importer(0, 1),
    "_get_submodule": Importer(),
}


def _callee(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _argument(call: ast.Call, position: int, parameters: list[str]) -> ast.expr | None:
    if 0 <= position < len(call.args):
        return call.args[position]
    name = parameters[position] if 0 <= position < len(parameters) else ""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


class StringImports:
    """The names in strings of one module that belong to `packages`."""

    def __init__(self, module: Module, packages: frozenset[str]) -> None:
        self.packages = packages
        self.importers = dict(_KNOWN)
        self.parameters: dict[str, list[str]] = {}
        self.tables: dict[int, list[tuple[str, ast.AST]]] = {}  # id of an expression -> symbols it stands for
        if not any(name in module.text for name in _KNOWN):
            return
        functions = [node for node in ast.walk(module.tree) if isinstance(node, Function)]
        for _ in range(2):  # a wrapper of a wrapper
            for function in functions:
                self._learn(function)
        if any(package in module.text for package in packages):
            for function in functions:
                self._tables(function)

    def _learn(self, function: Function) -> None:
        names = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            importer = self.importers.get(_callee(call))
            first = _argument(call, importer.module, self.parameters.get(_callee(call), [])) if importer else None
            if isinstance(first, ast.Name) and first.id in names and function.name not in _KNOWN:
                asked = [
                    names.index(item.args[1].id)
                    for item in ast.walk(function)
                    if isinstance(item, ast.Call)
                    and _callee(item) in ("getattr", "hasattr")
                    and len(item.args) > 1
                    and isinstance(item.args[1], ast.Name)
                    and item.args[1].id in names
                ]
                self.importers[function.name] = Importer(names.index(first.id), asked[0] if asked else -1)
                self.parameters[function.name] = names

    def ours(self, text: object) -> bool:
        return isinstance(text, str) and _DOTTED.fullmatch(text) is not None and text.partition(".")[0] in self.packages

    def within(self, node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
        """Symbols that an expression names in strings, with the node that does."""
        for item in ast.walk(node):
            yield from self.tables.get(id(item), ())
            if isinstance(item, ast.Call):
                yield from self._call(item)
            elif isinstance(item, ast.Constant) and isinstance(item.value, str) and ":" in item.value:
                match = _ENTRY.fullmatch(item.value)
                if match and self.ours(match[1]):
                    yield f"{match[1]}.{match[2]}", item

    def _call(self, call: ast.Call) -> Iterator[tuple[str, ast.AST]]:
        importer = self.importers.get(_callee(call))
        if importer is None:
            return
        parameters = self.parameters.get(_callee(call), [])
        module = _argument(call, importer.module, parameters)
        if isinstance(module, ast.Constant) and isinstance(module.value, str) and self.ours(module.value):
            name = _argument(call, importer.name, parameters) if importer.name >= 0 else None
            named = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""
            yield f"{module.value}.{named}" if named else module.value, call

    def _tables(self, function: Function) -> None:
        """Names that are asked of imported modules: `hasattr(mod, "x")`, pairs in loops, names in comprehensions."""
        literals: dict[str, ast.expr] = {}
        modules: dict[str, str] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                literals[node.targets[0].id] = node.value
                for symbol, _ in self._call(node.value) if isinstance(node.value, ast.Call) else ():
                    modules[node.targets[0].id] = symbol
        for node in ast.walk(function):
            if isinstance(node, ast.For):
                self._pairs(node, literals)
            elif isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
                self._names(node, modules, literals)
            elif isinstance(node, ast.Call) and _callee(node) in ("hasattr", "getattr") and len(node.args) > 1:
                module, name = node.args[0], node.args[1]
                if isinstance(module, ast.Name) and module.id in modules and isinstance(name, ast.Constant):
                    self.tables[id(node)] = [(f"{modules[module.id]}.{name.value!s}", node)]

    def _pairs(self, loop: ast.For, literals: dict[str, ast.expr]) -> None:
        source = literals.get(loop.iter.id) if isinstance(loop.iter, ast.Name) else loop.iter
        if not (isinstance(loop.target, ast.Tuple) and isinstance(source, ast.List | ast.Tuple)):
            return
        names = [item.id for item in loop.target.elts if isinstance(item, ast.Name)]
        called = {
            argument.id
            for node in ast.walk(loop)
            if isinstance(node, ast.Call) and _callee(node) in self.importers
            for argument in node.args
            if isinstance(argument, ast.Name)
        }
        if len(names) != 2 or names[0] not in called:
            return
        for pair in source.elts:
            if isinstance(pair, ast.Tuple) and len(pair.elts) == 2:
                module, name = (item.value if isinstance(item, ast.Constant) else None for item in pair.elts)
                if isinstance(module, str) and isinstance(name, str) and self.ours(module):
                    self.tables[id(pair)] = [(f"{module}.{name}", pair)]

    def _names(
        self,
        node: ast.GeneratorExp | ast.ListComp | ast.SetComp,
        modules: dict[str, str],
        literals: dict[str, ast.expr],
    ) -> None:
        call, generator = node.elt, node.generators[0]
        asked = [
            item
            for item in ast.walk(call)
            if isinstance(item, ast.Call) and _callee(item) in ("hasattr", "getattr") and len(item.args) > 1
        ]
        source = literals.get(generator.iter.id) if isinstance(generator.iter, ast.Name) else generator.iter
        if not asked or not isinstance(source, ast.List | ast.Tuple | ast.Set):
            return
        module, name = asked[0].args[0], asked[0].args[1]
        if isinstance(module, ast.Name) and module.id in modules and ast.unparse(name) == ast.unparse(generator.target):
            for item in source.elts:
                if isinstance(item, ast.Constant):
                    self.tables[id(item)] = [(f"{modules[module.id]}.{item.value!s}", item)]
