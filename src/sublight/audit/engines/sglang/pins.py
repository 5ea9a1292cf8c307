"""Versions that SGLang asks for when it runs, and the environment variables that it reads."""

import ast
import re
from collections.abc import Iterator

from sublight.audit.engines.base import Pin
from sublight.audit.ladder import Proof
from sublight.audit.source.events import shown
from sublight.audit.source.tree import Module, Sources

# Refuses to start, or chooses a backend only from this version on.
_CHECKS = ("assert_pkg_version", "check_pkg_version_at_least")
_PLACES = ("sglang.srt.entrypoints.engine", "sglang.srt.server_args")
_GROUPS = ("sglang.srt.arg_groups", "sglang.srt.arg_groups.model_overrides")
_LIST = "sglang.srt.environ"
_VARIABLE = re.compile(rb"""["']((?:SGLANG|SGL|DEEPGEMM|DG)_[A-Z0-9_]+)["']""")
_PREFIXES = (b"SGLANG_", b"SGL_", b"DEEPGEMM_", b"DG_")
_MEMBER = re.compile(rb"^    ((?:SGLANG|SGL)_[A-Z0-9_]+)\s*=", re.MULTILINE)


def pins(sources: Sources) -> tuple[Pin, ...]:
    """Checks with a literal version, each under the condition it stands under."""
    names = [*_PLACES, *(inner for group in _GROUPS for inner in sources.submodules(group))]
    modules = [module for name in names if (module := sources.module(name)) is not None]
    found = [pin for module in modules if any(check in module.text for check in _CHECKS) for pin in _pins(module)]
    return tuple(dict.fromkeys(found))


def _pins(module: Module) -> Iterator[Pin]:
    for node, conditions in _calls(module.tree, ()):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in _CHECKS or len(node.args) < 2:
            continue
        package, version = (each.value if isinstance(each, ast.Constant) else None for each in node.args[:2])
        if isinstance(package, str) and isinstance(version, str):
            proof = Proof("source", module.at(node), f"{name}({package!r}, {version!r})")
            yield Pin(package.replace("_", "-"), f">={version}", proof, " and ".join(conditions))


def _calls(node: ast.AST, conditions: tuple[str, ...]) -> Iterator[tuple[ast.Call, tuple[str, ...]]]:
    """Calls, with the tests of every `if` around them."""
    if isinstance(node, ast.Call):
        yield node, conditions
    if isinstance(node, ast.If):
        test = shown(node.test)
        yield from _calls(node.test, conditions)
        for then in node.body:
            yield from _calls(then, (*conditions, test))
        for otherwise in node.orelse:
            yield from _calls(otherwise, (*conditions, f"not ({test})"))
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        conditions = ()
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, conditions)


def known_variables(sources: Sources) -> frozenset[str] | None:
    """Variables that the engine's own list has, and all whose name stands anywhere in its server's source."""
    listed = sources.module(_LIST)
    if listed is None:
        return None
    found = {name.decode() for name in _MEMBER.findall(listed.text.encode())}
    for data in _files(sources, f"{sources.roots['sglang']}/sglang"):
        found.update(name.decode() for name in _VARIABLE.findall(data))
    return frozenset(found)


def _files(sources: Sources, folder: str) -> Iterator[bytes]:
    for entry in sources.reader.names(folder):
        if entry.endswith("/"):
            yield from _files(sources, f"{folder}/{entry.rstrip('/')}")
        elif entry.endswith(".py"):
            data = sources.reader.read(f"{folder}/{entry}")
            if data is not None and any(prefix in data for prefix in _PREFIXES):  # cheaper than the pattern
                yield data
