"""How a package comes to its GPU code: shipped in its files, or built when it is first called, and by what.

Where code is built is read from the module that a symbol is defined in: what that module imports at its top decides.
"""

import ast
import re
from collections.abc import Iterable, Iterator

import msgspec

from sublight.audit.source.failing import outside
from sublight.audit.source.outline import outline
from sublight.audit.source.tree import Module, Sources

_BUILDERS = {"cutlass": "cutlass-dsl", "triton": "triton", "tilelang": "nvcc"}
DSL = "cutlass"  # CuTe DSL's import name
COMPILERS = frozenset(_BUILDERS) - {"triton"}  # packages that nothing else brings along; Triton comes with torch


class Prebuilt(msgspec.Struct, frozen=True):
    """Packages that bring code which is otherwise built on the machine: import names, and what they hold."""

    package: str
    companions: tuple[str, ...]


# FlashInfer looks for these two before it calls nvcc: cubins of TensorRT-LLM's kernels, and its own modules.
PREBUILT = {"flashinfer": Prebuilt("flashinfer", ("flashinfer_cubin", "flashinfer_jit_cache"))}


def builder(sources: Sources, dotted: str) -> str:
    """What builds the code behind a symbol: "nvcc", "triton", "cutlass-dsl", or "" for nothing that can be seen."""
    module = _module_of(sources, dotted)
    if module is None:
        return ""
    found = [
        _builder_of(module, node) for node in outline(module).body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    kind = next((kind for kind in ("cutlass-dsl", "nvcc", "triton") if kind in found), "")
    return "cutlass-dsl" if not kind and DSL in outside(sources, module.name) else kind


def operators(sources: Sources, dotted: str) -> frozenset[str]:
    """Namespaces of compiled operators (`torch.ops.NAMESPACE`) that a module calls, itself or through one of calls.

    Only a module that is imported as one counts (`from vllm import _custom_ops as ops`): a function taken from some
    helper says nothing about what else is in there. Operators that write the KV cache stand beside kernels, and are
    none.
    """
    module = _module_of(sources, dotted)
    if module is None:
        return frozenset()
    beside = [sources.module(name) for name in _imported_modules(sources, module)]
    called = [module, *(each for each in beside if each is not None and not each.is_package)]
    found = {name for each in called for name in _OPERATOR.findall(each.text)}
    return frozenset(name for name in found if "cache" not in name)


def holds(libraries: Iterable[str], namespace: str) -> bool:
    """Whether one of these shipped files has the operators of a namespace: a library registers them under its name.

    What stands behind the "C" that ends such a name says how it was built, or groups its operators.
    """
    stems = (path.rpartition("/")[2].partition(".")[0] for path in libraries)
    return any(_family(stem) == _family(namespace) for stem in stems)


def _family(name: str) -> str:
    found = _FAMILY.match(name)
    return found[0] if found else name


def _imported_modules(sources: Sources, module: Module) -> Iterator[str]:
    """Names that may be modules of the same package, bound whole at the top of this one."""
    package = module.name.partition(".")[0]
    for node in outline(module).body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = sources.absolute(module, node.module, node.level)
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == package)


_OPERATOR = re.compile(r"\btorch\.ops\.(\w+)")
_FAMILY = re.compile(r"_?(?:[a-z0-9]+_)*C(?=_|$)")  # "_C", "_moe_C" of "_moe_C_stable_libtorch", "_C" of "_C_custom_ar"


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
