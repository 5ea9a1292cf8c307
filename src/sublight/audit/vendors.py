"""Libraries of other vendors' cards: a path that cannot do without one runs on no card of NVIDIA's.

An engine's file for several vendors imports them under a condition or in a guard; those imports prove nothing. One that
the path itself makes, or that stands without a condition in a method that every use of the class runs, does. So does a
kernel that lies in such a library, and one that the engine itself names after another vendor's machine.
"""

import ast
import re
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
    "wave_lang": "AMD's ROCm",
}
# Words in the name of a class, function or module of an engine's that say which machine it is written for.
_MACHINES = {
    "amx": "CPUs",
    "ascend": "Huawei's Ascend",
    "cpu": "CPUs",
    "hpu": "Intel's Gaudi",
    "musa": "Moore Threads' cards",
    "npu": "Huawei's Ascend",
    "rocm": "AMD's ROCm",
    "tpu": "Google's TPU",
    "xpu": "Intel's XPU",
}
_NAMED_AFTER = {name: _LIBRARIES[name] for name in ("aiter", "mori")}  # also what is named after their library
_PIECES = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]+")
_ALWAYS = frozenset({"__init__", "__call__", "apply", "build", "forward", "run"})


def foreign(sources: Sources, route: Route) -> tuple[Gate, ...]:
    """A refusal for each other vendor's library that a path needs, with the line that imports it."""
    found = dict(_needed(route))
    for top, proof in _unconditional(sources, route.destination):
        found.setdefault(top, proof)
    gates = [
        Gate(Answer.FAIL, f"it needs {top}, which is for {_LIBRARIES[top]}", proof) for top, proof in found.items()
    ]
    return (*gates, *(() if gates else _named(sources, route.destination)))


def _named(sources: Sources, destination: str) -> Iterator[Gate]:
    """A refusal where the engine itself names what runs after another vendor's machine, with the line that does."""
    resolved = resolve(sources, destination) if destination else None
    if resolved is None or not resolved.found or not resolved.chain:
        return
    module, _, last = (resolved.home or destination).rpartition(".")
    for name in (last, module.rpartition(".")[2]):
        machine = machine_of(name)
        if machine:
            text = f"{name} is, by the name it has in the engine, for {machine}"
            yield Gate(Answer.FAIL, text, resolved.chain[-1])
            return


def machine_of(name: str) -> str:
    """Whose machine a name is of ("XPUMLASparseBackend": Intel's XPU), "" for most names.

    CPUs are named in passing too (`copy_to_cpu`); there the word has to come first.
    """
    pieces = _PIECES.findall(name)
    for at, piece in enumerate(pieces):
        for word, machine in (_MACHINES | _NAMED_AFTER).items():
            found = piece.lower() == word or (piece.isupper() and piece.lower().startswith(word))
            if found and (word != "cpu" or at == 0):
                return machine
    return ""


def _needed(route: Route) -> Iterator[tuple[str, Proof]]:
    top = route.destination.partition(".")[0]
    if top in _LIBRARIES:
        where = route.proofs[-1].where if route.proofs else ""
        yield top, Proof("source", where, f"{route.destination} is what runs")
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
