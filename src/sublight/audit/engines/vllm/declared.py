"""What a version of vLLM declares: names of its options, of its enumerations, and variables it reads.

An option's names are a `Literal` of its configuration; which of them mean something for a weight format stands in the
mapping of that format's oracle. A member of an oracle's enumeration that no name leads to, and none is called like,
is chosen by vLLM alone.
"""

import ast
from collections.abc import Iterator

from sublight.audit.engines.base import Declaration
from sublight.audit.engines.vllm.formats import scheme_of
from sublight.audit.ladder import Proof
from sublight.audit.source.outline import bindings
from sublight.audit.source.tree import Module, Sources
from sublight.audit.target import Target

CONFIGURATIONS = "vllm.config"
ARGUMENTS = "vllm.engine.arg_utils"
ORACLES = "vllm.model_executor.layers.fused_moe.oracle"
MOE_FLAG = "--moe-backend"
_NO_BACKEND = "NONE"  # a member that stands for none of them
VARIABLES = ("vllm.envs", "environment_variables")


def literal(sources: Sources, name: str) -> tuple[Module, list[ast.Constant]] | None:
    """The values of `name = Literal[...]` somewhere in the configuration, and the module that holds it."""
    for dotted in (f"{CONFIGURATIONS}.kernel", *sources.submodules(CONFIGURATIONS), CONFIGURATIONS):
        module = sources.module(dotted)
        if module is None or name not in module.text:
            continue
        for binding in bindings(module).get(name, ()):
            if isinstance(binding.value, ast.Subscript) and ast.unparse(binding.value.value).endswith("Literal"):
                inner = binding.value.slice
                items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return module, [item for item in items if isinstance(item, ast.Constant)]
    return None


def all_to_alls(sources: Sources) -> tuple[str, ...] | None:
    """Names that --all2all-backend takes; None when no list of them was found."""
    found = literal(sources, "All2AllBackend")
    return tuple(str(item.value) for item in found[1]) if found else None


def option(sources: Sources, flag: str) -> Proof | None:
    """The line that adds an option to the command line."""
    module = sources.module(ARGUMENTS)
    if module is None:
        return None
    for number, line in enumerate(module.lines, 1):
        if f'"{flag}"' in line:
            return Proof("source", f"{module.shown}:{number}", line.strip())
    return None


def named(sources: Sources, area: str, literal_name: str, flag: str) -> tuple[Declaration, ...]:
    """One declaration a value of a `Literal`; what oracles know of it comes in `moe`."""
    found = literal(sources, literal_name)
    if found is None:
        return ()
    module, values = found
    accepts = option(sources, flag)
    return tuple(
        Declaration(
            area,
            str(item.value),
            f"{flag} {item.value!s}",
            True if accepts else None,
            None,
            (Proof("source", module.at(item), module.line(item.lineno)), *((accepts,) if accepts else ())),
        )
        for item in values
    )


def moe(sources: Sources) -> tuple[Declaration, ...]:
    mapped = dict(_mapped(sources))
    declared = []
    for item in named(sources, "moe", "MoEBackend", MOE_FLAG):
        places = mapped.get(item.name, ())
        formats = ", ".join(_stem(proof) for proof in places)
        note = f"means something for {formats}" if places else "" if item.name == "auto" else "in no oracle's mapping"
        known = bool(places) or item.name == "auto"
        declared.append(
            Declaration(item.area, item.name, item.flag, item.selectable, known, (*item.proofs, *places), note)
        )
    unnamed: dict[str, Declaration] = {}
    options = {item.name for item in declared}
    if not options:
        return ()  # what no option takes cannot be told either
    for item in _unnamed(sources):
        if item.name.lower() in options:
            continue  # the option takes it; that this format's oracle does not map it is for the route to say
        before = unnamed.get(item.name)
        unnamed[item.name] = _joined(before, item) if before else item
    return (*declared, *unnamed.values())


def concerns(declaration: Declaration, target: Target) -> bool:
    """Whether a name is worth an answer for the target: of those that no option takes, its own format's."""
    scheme = scheme_of(target)
    if declaration.area != "moe" or declaration.selectable is not False or scheme is None:
        return True
    return any(_stem(proof) == scheme.oracle for proof in declaration.proofs)


def _joined(a: Declaration, b: Declaration) -> Declaration:
    """One name that several enumerations hold."""
    proofs = (*a.proofs, *b.proofs)
    formats = ", ".join(_stem(proof) for proof in proofs)
    return Declaration(a.area, a.name, "", False, True, proofs, _alone(formats))


def _alone(formats: str) -> str:
    return f"only in the enumeration for {formats}: vLLM chooses it by itself"


def _mapped(sources: Sources) -> Iterator[tuple[str, tuple[Proof, ...]]]:
    """Names that some oracle maps, with the line in each."""
    found: dict[str, list[Proof]] = {}
    for module in _oracles(sources):
        for node in _maps(module):
            for item in ast.walk(node):
                keys = item.keys if isinstance(item, ast.Dict) else []
                for key in keys:
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        proof = Proof("source", module.at(key), module.line(key.lineno))
                        found.setdefault(key.value, []).append(proof)
    for name, proofs in found.items():
        yield name, tuple(proofs)


def _unnamed(sources: Sources) -> Iterator[Declaration]:
    """Members of the oracles' enumerations that no name leads to, in whichever of them."""
    modules = [module for module in _oracles(sources) if _maps(module)]
    maps = [node for module in modules for node in _maps(module)]
    led = {item.attr for node in maps for item in ast.walk(node) if isinstance(item, ast.Attribute)}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(base) for base in node.bases):
                for item in node.body:
                    if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                        name = item.targets[0].id
                        if name not in led and name != _NO_BACKEND:
                            proof = Proof("source", module.at(item), module.line(item.lineno))
                            yield Declaration("moe", name, "", False, True, (proof,), _alone(_stem(proof)))


def _oracles(sources: Sources) -> list[Module]:
    modules = [sources.module(name) for name in sources.submodules(ORACLES)]
    return [module for module in modules if module is not None]


def _maps(module: Module) -> list[ast.FunctionDef]:
    return [
        node
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("map_") and node.name.endswith("_backend")
    ]


def _stem(proof: Proof) -> str:
    return proof.where.rpartition("/")[2].partition(".")[0]


def variables(sources: Sources) -> frozenset[str] | None:
    """Environment variables of this version, None when the table was not found."""
    module = sources.module(VARIABLES[0])
    found = [binding.value for binding in bindings(module).get(VARIABLES[1], ())] if module else []
    keys = [key for value in found if isinstance(value, ast.Dict) for key in value.keys]
    names = frozenset(key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
    return names or None
