"""Libraries of other vendors' cards: a path that cannot do without one runs on no card of NVIDIA's.

An engine's file for several vendors imports them under a condition or in a guard; those imports prove nothing. One that
the path itself makes, or that stands without a condition in a method that every use of the class runs, does.
"""

import ast
from collections.abc import Iterable, Iterator

from sublight.audit.engines.base import Gate, Route
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.symbols import resolve
from sublight.audit.source.tree import Module, Sources

# Import name -> whose cards it is for. Each ships kernels for these alone.
_LIBRARIES = {
    "aiter": "AMD's ROCm",
    "amdsmi": "AMD's ROCm",
    "flydsl": "AMD's ROCm",
    "habana_frameworks": "Intel's Gaudi",
    "intel_extension_for_pytorch": "Intel's XPU and CPU",
    "mori": "AMD's ROCm",
    "sgl_kernel_npu": "Huawei's Ascend",
    "torch_npu": "Huawei's Ascend",
    "torch_xla": "Google's TPU",
    "vllm_xpu_kernels": "Intel's XPU",
}
_ALWAYS = frozenset({"__init__", "__call__", "apply", "build", "forward", "run"})


def foreign(sources: Sources, route: Route) -> tuple[Gate, ...]:
    """A refusal for each other vendor's library that a path needs, with the line that imports it."""
    found = dict(_needed(route))
    for top, proof in _unconditional(sources, route.destination):
        found.setdefault(top, proof)
    return tuple(
        Gate(Answer.FAIL, f"it needs {top}, which is for {_LIBRARIES[top]}", proof) for top, proof in found.items()
    )


def _needed(route: Route) -> Iterator[tuple[str, Proof]]:
    for need in route.needs:
        top = need.symbol.partition(".")[0]
        if top in _LIBRARIES and need.how != "guarded" and not need.only_if:
            yield top, Proof("source", need.where, f"imports {need.symbol} ({need.how})")


def _unconditional(sources: Sources, destination: str) -> Iterator[tuple[str, Proof]]:
    home = resolve(sources, destination).home if destination else ""
    module = sources.module(home.rpartition(".")[0]) if home else None
    if module is None:
        return
    yield from _imports(module, module.tree.body)
    last = home.rpartition(".")[2]
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == last:
            yield from _imports(module, node.body)
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name in _ALWAYS:
                    yield from _imports(module, method.body)


def _imports(module: Module, body: Iterable[ast.stmt]) -> Iterator[tuple[str, Proof]]:
    """Imports that stand in these statements themselves: none inside an `if`, a `try` or a function."""
    for node in body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            if name.partition(".")[0] in _LIBRARIES:
                yield name.partition(".")[0], Proof("source", module.at(node), module.line(node.lineno))
