"""Names that no statement of a module binds: compiled modules, a module's own `__getattr__`, names made at run time."""

import ast
import re
from typing import NamedTuple

from sublight.audit.source.outline import bindings
from sublight.audit.source.tree import Module, Sources

_RUN_TIME = re.compile(
    r"^[ \t]*(?:globals\(\)(?:\[|\.update)|vars\(\)\[|sys\.modules\[|_?sys\.modules\[|setattr\(sys\.modules|exec\()",
    re.MULTILINE,
)


def compiled(sources: Sources, name: str) -> str:
    """The file of a compiled module as a reader sees it, "" when there is none."""
    package, _, stem = name.rpartition(".")
    root = sources.roots.get(name.partition(".")[0])
    if root is None:
        return ""
    folder = package.replace(".", "/")
    for entry in sources.reader.names(f"{root}/{folder}" if folder else root):
        if entry.partition(".")[0] == stem and entry.endswith((".so", ".pyd")):
            return f"{folder}/{entry}" if folder else entry
    return ""


class Served(NamedTuple):
    """A name that `__getattr__` answers: the line that lists it, and the module it comes from ("" if unseen)."""

    line: int
    target: str


def lazily_served(module: Module, name: str) -> Served | tuple[()] | None:
    """What `__getattr__` of a module does with `name`.

    Returns:
        Served: the name is listed; an empty tuple: it is not, and there is no `__getattr__` or it refuses what it does
        not list; None: it may answer anything.
    """
    if "__getattr__" not in bindings(module):
        return ()
    found = [node for node in module.tree.body if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"]
    if not found:
        return None
    function = found[-1]
    literals: list[ast.AST] = [function]
    mentioned = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    for table in mentioned:
        literals += [binding.value for binding in bindings(module).get(table, ()) if binding.value is not None]
    for literal in literals:
        for node in ast.walk(literal):
            if isinstance(node, ast.Constant) and node.value == name:
                return Served(_line(module, name, node.lineno), _target(module, literal, name))
    strings = [node for item in literals for node in ast.walk(item) if isinstance(node, ast.Constant)]
    refuses = any(isinstance(node, ast.Raise) for node in ast.walk(function))
    return () if refuses and any(isinstance(node.value, str) for node in strings[1:]) else None


def _line(module: Module, name: str, line: int) -> int:
    return line if name in module.line(line) else 1


def _target(module: Module, literal: ast.AST, name: str) -> str:
    """The module a table gives for a name: {"name": ".sub.module"} or {"name": ("package.module", "name")}."""
    for node in ast.walk(literal):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    texts = [item.value for item in ast.walk(value) if isinstance(item, ast.Constant)]
                    text = next((item for item in texts if isinstance(item, str)), "")
                    return _absolute(module, text)
    # `from . import fused_moe` inside the function, and the name is asked of it
    for node in ast.walk(literal if isinstance(literal, ast.FunctionDef) else module.tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            for inner in ast.walk(node):
                if isinstance(inner, ast.ImportFrom) and inner.level and len(inner.names) == 1:
                    return _absolute(
                        module, "." * inner.level + ".".join(filter(None, [inner.module, inner.names[0].name]))
                    )
    return ""


def _absolute(module: Module, text: str) -> str:
    if not text.startswith("."):
        return text
    level = len(text) - len(text.lstrip("."))
    parts = module.name.split(".")
    kept = parts[: len(parts) - level + (1 if module.is_package else 0)]
    return ".".join([*kept, text.lstrip(".")]).rstrip(".")


def made_at_run_time(module: Module) -> int:
    """The line of the module level that binds names no reader can see, 0 when there is none."""
    for match in _RUN_TIME.finditer(module.text):
        line = module.text.count("\n", 0, match.end()) + 1
        if not any(
            node.lineno <= line <= (node.end_lineno or node.lineno)
            for node in module.tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ):
            return line
    return 0
