"""Guards: a `try` or `suppress` around imports, what it catches, and what the code goes on with when one of them fails.

A guard is all or nothing: the first failing import loses every name that stands after it in the same block.
"""

import ast

import msgspec

from sublight.audit.source.outline import absolute, is_suppress, swallows_import_error
from sublight.audit.source.tree import Module


class Guard(msgspec.Struct, frozen=True):
    """What swallows a failing import.

    Attributes:
        where: file:line of the `try` or `with`.
        on_failure: what the code does then, in words.
        fallbacks: symbols that are imported instead.
        together: names that the same guard protects, in order: one that fails takes the later ones along.
        flags: names that are set to a constant when an import fails, as text ("AVAILABLE = False").
    """

    where: str
    on_failure: str
    fallbacks: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def guard_of(module: Module, node: ast.Try | ast.With | ast.AsyncWith, packages: frozenset[str]) -> Guard | None:
    """The guard that a statement is; None for one that lets a failing import through."""
    together = tuple(_imported(module, node.body, packages))
    if not isinstance(node, ast.Try):
        return Guard(module.at(node), "ignored", (), together) if is_suppress(node) else None
    handler = next((item for item in node.handlers if swallows_import_error(item.type)), None)
    if handler is None or isinstance(handler.body[-1], ast.Raise):
        return None
    fallbacks = tuple(_imported(module, handler.body, None))
    flags = tuple(_flags(handler.body))
    return Guard(module.at(node), _failure(handler.body, fallbacks, flags), fallbacks, together, flags)


def _imported(module: Module, body: list[ast.stmt], packages: frozenset[str] | None) -> list[str]:
    found = []
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [f"{absolute(module, node)}.{alias.name}" for alias in node.names]
    return [name for name in found if packages is None or name.partition(".")[0] in packages]


def _flags(body: list[ast.stmt]) -> list[str]:
    return [
        ast.unparse(node)
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    ]


def _failure(body: list[ast.stmt], fallbacks: tuple[str, ...], flags: tuple[str, ...]) -> str:
    if fallbacks:
        return f"falls back to {', '.join(fallbacks)}"
    if flags:
        return ", ".join(f"{name} is {value}" for name, _, value in (flag.partition(" = ") for flag in flags))
    last = body[-1]
    if isinstance(last, ast.Return):
        return f"returns {ast.unparse(last.value) if last.value else 'None'}"
    if isinstance(last, ast.FunctionDef):
        return f"{last.name} is a stand-in"
    return "ignored"
