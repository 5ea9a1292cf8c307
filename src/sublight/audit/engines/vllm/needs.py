"""What a kernel class of vLLM's needs of other packages when it runs: its own late imports, and wrappers it calls.

vLLM reaches FlashInfer through a module of wrappers, each made from a pair of strings, and other libraries through
facades of the same kind; a class that imports the wrapper needs the symbol behind it.
"""

import ast
from weakref import WeakKeyDictionary

import msgspec

from sublight.audit.engines.base import Need
from sublight.audit.engines.vllm.judge import Verdict, essential, judge
from sublight.audit.engines.vllm.walk import Walk
from sublight.audit.source.imports import Import, imports
from sublight.audit.source.outline import bindings
from sublight.audit.source.tree import Module
from sublight.audit.source.values import Class

OPTIONAL = (
    "flashinfer",
    "deep_gemm",
    "triton_kernels",
    "humming",
    "b12x",
    "cutlass",
    "aiter",
    "hpc",
    "deep_ep",
    "quack",
    "fbgemm_gpu",
)
_WRAPPERS = "vllm.utils."
_PROBES = ("flashinfer", "import_utils", "deep_gemm", "humming", "b12x")


def of(walk: Walk, verdicts: tuple[Verdict, ...], method: str) -> tuple[Need, ...]:
    """What these candidates could not do without, and what the last of them imports or wraps when it runs."""
    needs: dict[str, Need] = {}
    for verdict in verdicts:
        again = judge(walk, verdict.cls, method, list(verdict.asked[0]), dict(verdict.asked[1]))
        for symbol in (*_asked_once(verdict.symbols, again.symbols), *again.symbols):
            if symbol not in walk.needs or symbol in needs:
                continue
            if verdict.passes is None or symbol not in again.symbols or essential(walk, verdict, method, symbol):
                needs[symbol] = _placed(walk, walk.needs[symbol])
    for verdict in verdicts[-1:]:
        for need in used(walk, verdict.cls):
            needs.setdefault(need.symbol, need)
    return tuple(needs.values())


def _asked_once(first: tuple[str, ...], again: tuple[str, ...]) -> list[str]:
    """Packages and modules that a module asked for when it was loaded, and that hold what is asked for each time."""
    return [name for name in first if name not in again and any(later.startswith(f"{name}.") for later in again)]


def _placed(walk: Walk, need: Need) -> Need:
    """A need with the line that names it, where the function that asks for it does so in strings."""
    shown = need.where.rpartition(":")[0]
    for module in _probing(walk):
        if module.shown == shown:
            lines = [item.where for item in _imports(module) if item.symbol == need.symbol and item.scope]
            start = int(need.where.rpartition(":")[2] or 0)
            later = [line for line in lines if int(line.rpartition(":")[2]) >= start]
            return msgspec.structs.replace(need, where=later[0]) if later else need
    return need


def used(walk: Walk, cls: Class) -> tuple[Need, ...]:
    """Needs of a class: imports without which its module has none, late ones inside it, wrappers it calls by name."""
    module = cls.module.module
    found = [as_need(item) for item in _imports(module) if _within(item, cls) or _loading(item)]
    called = {node.id for node in ast.walk(cls.node) if isinstance(node, ast.Name)}
    for name, bound in bindings(module).items():
        target = bound[-1].target
        if name in called and target.startswith(_WRAPPERS):
            found += _behind(walk, *target.rsplit(".", 1))
    return tuple({need.symbol: need for need in found}.values())


def _loading(item: Import) -> bool:
    """Whether the module cannot be loaded without it."""
    return item.how == "module level" and not item.conditions and item.kind != "attribute"


def _within(item: Import, cls: Class) -> bool:
    inside = item.scope == cls.qualified or item.scope.startswith(f"{cls.qualified}.")
    return inside and item.kind != "attribute"


def _behind(walk: Walk, dotted: str, name: str) -> list[Need]:
    """The symbol behind a wrapper: what the statement that makes it names in strings."""
    module = walk.sources.module(dotted)
    if module is None:
        return []
    made = [binding.node for binding in bindings(module).get(name, ()) if binding.value is not None]
    lines = {line for node in made for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return [
        as_need(item) for item in _imports(module) if not item.scope and int(item.where.rpartition(":")[2]) in lines
    ]


_read: "WeakKeyDictionary[Module, tuple[Import, ...]]" = WeakKeyDictionary()


def _imports(module: Module) -> tuple[Import, ...]:
    if module not in _read:
        _read[module] = imports(module, OPTIONAL)
    return _read[module]


def as_need(item: Import) -> Need:
    return Need(item.symbol, item.where, item.how, item.on_failure, " and ".join(item.conditions))


def asked_by(walk: Walk) -> tuple[Need, ...]:
    """Where vLLM asked for what is missing."""
    found = []
    for module in _probing(walk):
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef) and _named(node) & set(walk.missing):
                name = sorted(_named(node) & set(walk.missing))[0]
                found.append(Need(name, module.at(node), "string"))
    return tuple(found)


def switches_for(walk: Walk, missing: tuple[str, ...]) -> tuple[str, ...]:
    """Variables that answer for vLLM's own test: read by the function that asks for something missing."""
    found = []
    for module in _probing(walk):
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef) and _named(node) & set(missing):
                found += [
                    f"{item.attr}=1"
                    for item in ast.walk(node)
                    if isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == "envs"
                ]
    return tuple(dict.fromkeys(found))


def _probing(walk: Walk) -> list[Module]:
    names = [name for name in walk.sources.submodules("vllm.utils") if name.rpartition(".")[2] in _PROBES]
    return [module for name in names if (module := walk.sources.module(name)) is not None]


def _named(node: ast.AST) -> set[str]:
    return {item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and isinstance(item.value, str)}
