"""How a package comes to its GPU code: shipped in its files, or built when it is first called, and by what.

Where code is built is read from the module that a symbol is defined in: what that module imports at its top decides.
"""

import ast
import re

import msgspec

from sublight.audit.source.symbols import Resolution
from sublight.audit.source.tree import Module, Sources

_BUILDERS = {"cutlass": "cutlass-dsl", "triton": "triton", "tilelang": "nvcc"}


class Prebuilt(msgspec.Struct, frozen=True):
    """Packages that bring code which is otherwise built on the machine: import names, and what they hold."""

    package: str
    companions: tuple[str, ...]


# FlashInfer looks for these two before it calls nvcc: cubins of TensorRT-LLM's kernels, and its own modules.
PREBUILT = {"flashinfer": Prebuilt("flashinfer", ("flashinfer_cubin", "flashinfer_jit_cache"))}


def builder(sources: Sources, resolution: Resolution) -> str:
    """What builds the code behind a symbol: "nvcc", "triton", "cutlass-dsl", or "" for nothing that can be seen."""
    module = _module_of(sources, resolution.home or resolution.prefix)
    if module is None:
        return ""
    found = [_builder_of(module, node) for node in module.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return next((kind for kind in ("cutlass-dsl", "nvcc", "triton") if kind in found), "")


def _builder_of(module: Module, node: ast.Import | ast.ImportFrom) -> str:
    if isinstance(node, ast.Import):
        tops = {alias.name.partition(".")[0] for alias in node.names}
        return next((_BUILDERS[top] for top in tops if top in _BUILDERS), "")
    name = node.module or ""
    if not node.level and name.partition(".")[0] in _BUILDERS:
        return _BUILDERS[name.partition(".")[0]]
    imported = [name, *(alias.name for alias in node.names)]
    inside = node.level or name.partition(".")[0] == module.name.partition(".")[0]
    return "nvcc" if inside and any(re.fullmatch(r"(.*\.)?jit(\..*)?", part) for part in imported) else ""


def _module_of(sources: Sources, dotted: str) -> Module | None:
    """The module that the longest part of a name stands for."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        module = sources.module(".".join(parts[:length]))
        if module is not None:
            return module
    return None
