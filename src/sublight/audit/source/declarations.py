"""Declared values: members of enumerations, choices of options, lists of names, each with the line it stands on.

Values are compared, never the names that hold them: `TRITON_KERNELS = "triton_kernel"` declares "triton_kernel".
Names are followed through assignments and imports; what a list gets later (`NAMES.append(...)`) counts too.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from sublight.audit.source.tree import Module, Sources

_DEEP = 12  # names followed one after the other
_CONTAINERS = ("list", "tuple", "set", "frozenset", "sorted", "dict")


class Listed(NamedTuple):
    """A value and where it is declared."""

    value: object
    module: Module
    line: int

    @property
    def where(self) -> str:
        return f"{self.module.shown}:{self.line}"

    @property
    def text(self) -> str:
        return self.module.line(self.line)


def named(sources: Sources, dotted: str) -> list[Listed] | None:
    """Values of a module-level list, tuple, set, dict (its keys), Literal, or enumeration; None when it is none."""
    origin, _, name = dotted.rpartition(".")
    module = sources.module(origin)
    return _name(sources, module, name, _DEEP) if module is not None else None


def class_node(module: Module, name: str) -> ast.ClassDef | None:
    return next((n for n in module.tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)


def choices(sources: Sources, module: Module, flag: str) -> list[Listed] | None:
    """What `add_argument(flag, choices=...)` in a module accepts; None when no such call lists choices."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        if any(isinstance(each, ast.Constant) and each.value == flag for each in node.args):
            for keyword in node.keywords:
                if keyword.arg == "choices":
                    return values(sources, module, keyword.value)
    return None


def field_choices(sources: Sources, module: Module, field: str) -> list[Listed] | None:
    """What an annotated field of any class of a module accepts: `Arg(choices=NAME)` first, a Literal otherwise."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == field:
            for inner in ast.walk(node.annotation):
                if isinstance(inner, ast.Call):
                    for keyword in inner.keywords:
                        if keyword.arg == "choices":
                            return values(sources, module, keyword.value)
            found = values(sources, module, node.annotation)
            if found:
                return found
    return None


def decorated(module: Module, decorator: str) -> Iterator[tuple[tuple[object, ...], ast.FunctionDef | ast.ClassDef]]:
    """Every use of a decorator with literal arguments in a module, stacked ones each on their own."""
    if f"@{decorator}" not in module.text:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for each in node.decorator_list:
                if isinstance(each, ast.Call) and _last(each.func) == decorator:
                    arguments = tuple(a.value for a in each.args if isinstance(a, ast.Constant))
                    if len(arguments) == len(each.args):
                        yield arguments, node


def values(sources: Sources, module: Module, node: ast.expr, deep: int = _DEEP) -> list[Listed] | None:
    """Values an expression lists; None when it does not list any that can be read."""
    if deep <= 0:
        return None
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return _elements(sources, module, node.elts, deep)
    if isinstance(node, ast.Dict):
        return _elements(sources, module, [key for key in node.keys if key is not None], deep)
    if isinstance(node, ast.Name):
        return _name(sources, module, node.id, deep - 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.BitOr)):
        sides = [values(sources, module, side, deep - 1) for side in (node.left, node.right)]
        return [each for side in sides if side for each in side] if any(sides) else None
    if isinstance(node, ast.Subscript):
        return _subscript(sources, module, node, deep)
    if isinstance(node, ast.Call):
        return _call(sources, module, node, deep)
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):  # [member.value for member in Names]
        return values(sources, module, node.generators[0].iter, deep - 1)
    return None


def _elements(sources: Sources, module: Module, nodes: list[ast.expr], deep: int) -> list[Listed]:
    found: list[Listed] = []
    for node in nodes:
        if isinstance(node, ast.Constant):
            found.append(Listed(node.value, module, node.lineno))
        elif isinstance(node, ast.Starred):
            found += values(sources, module, node.value, deep - 1) or []
        elif isinstance(node, (ast.List, ast.Tuple)):
            found += values(sources, module, node, deep - 1) or []
        elif isinstance(node, ast.Attribute):
            found += _member(sources, module, node, deep)
    return found


def _member(sources: Sources, module: Module, node: ast.Attribute, deep: int) -> list[Listed]:
    """`Names.MEMBER.value` or `Names.MEMBER`, on the line where it is used."""
    inner = node.value if node.attr == "value" and isinstance(node.value, ast.Attribute) else node
    if not isinstance(inner.value, ast.Name):
        return []
    cls = _class(sources, module, inner.value.id, deep - 1)
    if cls is None:
        return []
    for name, value in _assigned(cls[1]):
        if name == inner.attr and isinstance(value, ast.Constant):
            return [Listed(value.value, module, node.lineno)]
    return []


def _subscript(sources: Sources, module: Module, node: ast.Subscript, deep: int) -> list[Listed] | None:
    """`Literal["a", "b"]`, also inside Optional, Annotated and their kin."""
    inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if _last(node.value) == "Literal":
        return _elements(sources, module, list(inside), deep)
    for each in inside:
        found = (
            values(sources, module, each, deep - 1) if isinstance(each, (ast.Subscript, ast.BinOp, ast.Name)) else None
        )
        if found:
            return found
    return None


def _call(sources: Sources, module: Module, node: ast.Call, deep: int) -> list[Listed] | None:
    name = _last(node.func)
    if name in _CONTAINERS and node.args:
        return values(sources, module, node.args[0], deep - 1)
    if name in ("keys", "copy") and isinstance(node.func, ast.Attribute) and not node.args:
        return values(sources, module, node.func.value, deep - 1)
    if name == "get_args" and node.args:
        return values(sources, module, node.args[0], deep - 1)
    return None


def _name(sources: Sources, module: Module, name: str, deep: int) -> list[Listed] | None:
    if deep <= 0:
        return None
    found: list[Listed] | None = None
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            found = _members(module, node)
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            found = values(sources, module, node.value, deep - 1)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            found = values(sources, module, node.value, deep - 1) if node.value else None
        elif isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
            original = next(a.name for a in node.names if (a.asname or a.name) == name)
            other = sources.module(sources.absolute(module, node.module, node.level))
            found = _name(sources, other, original, deep - 1) if other is not None else None
        else:
            found = _edited(sources, module, node, name, found, deep)
    return found


def _edited(
    sources: Sources, module: Module, node: ast.stmt, name: str, found: list[Listed] | None, deep: int
) -> list[Listed] | None:
    """`NAMES.append(x)`, `NAMES.extend([...])`, `NAMES += [...]`, `NAMES.remove(x)` at top level."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
        return [*(found or []), *(values(sources, module, node.value, deep - 1) or [])]
    call = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    if call is None or not isinstance(call.func, ast.Attribute) or not call.args:
        return found
    if not isinstance(call.func.value, ast.Name) or call.func.value.id != name or found is None:
        return found
    method = call.func.attr
    if method in ("extend", "update"):
        return [*found, *(values(sources, module, call.args[0], deep - 1) or [])]
    if method in ("append", "add"):
        return [*found, *_elements(sources, module, [call.args[0]], deep)]
    if method in ("remove", "discard"):
        gone = {each.value for each in _elements(sources, module, [call.args[0]], deep)}
        return [each for each in found if each.value not in gone]
    return found


def _members(module: Module, node: ast.ClassDef) -> list[Listed] | None:
    """Members of an enumeration, by value; None for another class."""
    if not any("Enum" in _last(base) for base in node.bases):
        return None
    return [
        Listed(value.value, module, value.lineno)
        for name, value in _assigned(node)
        if isinstance(value, ast.Constant) and not name.startswith("_")
    ]


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for each in node.body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            yield each.targets[0].id, each.value


def _class(sources: Sources, module: Module, name: str, deep: int) -> tuple[Module, ast.ClassDef] | None:
    if deep <= 0:
        return None
    node = class_node(module, name)
    if node is not None:
        return module, node
    for each in module.tree.body:
        if isinstance(each, ast.ImportFrom) and any((a.asname or a.name) == name for a in each.names):
            other = sources.module(sources.absolute(module, each.module, each.level))
            original = next(a.name for a in each.names if (a.asname or a.name) == name)
            return _class(sources, other, original, deep - 1) if other is not None else None
    return None


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
