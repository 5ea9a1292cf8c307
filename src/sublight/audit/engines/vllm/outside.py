"""What vLLM asks of the world around it, answered from sources: whether a file is there, which parameters a method has.

It tells versions of a library apart by the parameters of a method, and takes a kernel for available when its file is
there; both stand in what is installed.
"""

import ast
from collections.abc import Callable
from typing import Any

from sublight.audit.source.outline import definition
from sublight.audit.source.symbols import resolve
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import External, Instance, Unknown, Value

Answering = Callable[[list[Value], dict[str, Value]], Value]
_KIND = "inspect.Parameter"


def exists(sources: Sources) -> Answering:
    """`os.path.exists` of a path below a package, as `__file__` of a read module begins one."""

    def answer(arguments: list[Value], _keywords: dict[str, Value]) -> Value:
        path = arguments[0] if arguments else None
        root = sources.roots.get(path.partition("/")[0]) if isinstance(path, str) else None
        if not isinstance(path, str) or root is None:
            return Unknown("whether a file is there", solid=True)
        above, _, name = path.rstrip("/").rpartition("/")
        return any(entry.rstrip("/") == name for entry in sources.reader.names(f"{root}/{above}"))

    return answer


def signature(sources: Sources) -> Answering:
    """`inspect.signature` of a function or method outside vLLM whose source is there."""

    def answer(arguments: list[Value], _keywords: dict[str, Value]) -> Value:
        asked = arguments[0] if arguments else None
        found = _parameters(sources, asked.dotted) if isinstance(asked, External) else None
        if found is None:
            return Unknown("a signature", solid=True)
        kinds = {name: Instance(None, {"kind": External(f"{_KIND}.{kind}")}, True) for name, kind in found.items()}
        return Instance(None, {"parameters": kinds}, True)

    return answer


def _parameters(sources: Sources, dotted: str) -> dict[str, str] | None:
    """Name -> kind of parameter; None for what is not found, or is no function."""
    found = resolve(sources, dotted)
    owner, _, name = found.home.rpartition(".") if found.found else ("", "", "")
    module = sources.module(owner) if owner else None
    node: Any = definition(module, name) if module is not None else None
    if node is None and owner:  # a method: its class stands in the module
        place, _, cls = owner.rpartition(".")
        module = sources.module(place) if place else None
        holder = definition(module, cls) if module is not None else None
        inside = holder.body if isinstance(holder, ast.ClassDef) else []
        node = next((n for n in inside if isinstance(n, ast.FunctionDef) and n.name == name), None)
    if not isinstance(node, ast.FunctionDef):
        return None
    spec = node.args
    either = {each.arg: "POSITIONAL_OR_KEYWORD" for each in (*spec.posonlyargs, *spec.args)}
    return either | {each.arg: "KEYWORD_ONLY" for each in spec.kwonlyargs}
