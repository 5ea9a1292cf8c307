"""FlashInfer, asked as a library: its MoE entry points and the backends of its FP4 product, with no engine in front."""

import re

from sublight.audit.engines.base import Declaration, Gate, Need, Pin, Route
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.outline import bindings
from sublight.audit.source.symbols import Resolution, resolve
from sublight.audit.source.tree import Sources
from sublight.audit.target import Target

PACKAGE = "flashinfer"
MOE = (f"{PACKAGE}.fused_moe", f"{PACKAGE}.moe_ep", PACKAGE)
MASKED = (f"{PACKAGE}.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked",)
PRODUCT = f"{PACKAGE}.mm_fp4"
# How it names functions that run experts, and classes that hold such a function's buffers. Builders, layouts, routing
# and communication have other endings.
_ENTRY = re.compile(
    r"^(?!has_|is_|get_|gen_|prepare_)(.*_)?moe(_(nvfp4|mxfp\d|fp[48]|bf16))*$|^\w*M[oO]E\w*(Wrapper|Layer)$"
)
# What a part of a name says about weights; none of them: the arguments decide.
_FORMATS = {
    "nvfp4": "NVFP4", "mxfp4": "MXFP4", "fp4": "NVFP4 or MXFP4", "mxfp8": "MXFP8", "fp8": "FP8", "bf16": "BF16",
    "mxint4": "INT4", "int4": "INT4",
}  # fmt: skip
_VARIABLE = re.compile(rb"""(?:environ|getenv|env)[^\n]{0,40}?["'](FLASHINFER_[A-Z0-9_]+)["']""")


class FlashInfer:
    name = "flashinfer"
    library = True  # engines call it: beside one of them it is audited by itself only when it is named
    package = PACKAGE
    distributions: tuple[str, ...] = ("flashinfer-python",)
    areas: tuple[str, ...] = ("moe", "fp4-gemm")
    folders: tuple[str, ...] = ("flashinfer/fused_moe", "flashinfer/cute_dsl", "flashinfer/gemm", "flashinfer/jit")
    variables: tuple[str, ...] = ("FLASHINFER_",)

    def declared(self, sources: Sources, area: str) -> tuple[Declaration, ...]:
        if area == "moe":
            return self._entries(sources)
        return self._backends(sources) if area == "fp4-gemm" else ()

    def _entries(self, sources: Sources) -> tuple[Declaration, ...]:
        """Public functions and wrapper classes for experts, each once, by the shortest name that leads to it."""
        found: dict[str, Declaration] = {}
        for place in MOE:
            module = sources.module(place)
            for name, bound in bindings(module).items() if module else ():
                if not _ENTRY.search(name) or (place == PACKAGE and name in _names(found)):
                    continue
                answer = resolve(sources, f"{place}.{name}")
                if module and answer.found and answer.kind in ("function", "class") and answer.home not in found:
                    proofs = (Proof("source", module.at(bound[0].node), f"{place}.{name}"), *answer.chain[-1:])
                    note = "; ".join(answer.conditions)
                    flag = f"from {place} import {name}"
                    found[answer.home] = Declaration("moe", f"{place}.{name}", flag, True, None, proofs, note)
        for symbol in MASKED:
            answer = resolve(sources, symbol)
            if answer.found:
                place, _, name = symbol.rpartition(".")
                flag = f"from {place} import {name}"
                found[answer.home] = Declaration("moe", symbol, flag, True, None, answer.chain[-1:])
        return tuple(found.values())

    def _backends(self, sources: Sources) -> tuple[Declaration, ...]:
        from sublight.audit.engines.flashinfer import gates

        found = gates.definition(sources, PRODUCT)
        if found is None:
            return ()
        declared = []
        for backend in gates.requirements(found):
            line = gates.backend_line(found, backend) if backend else None
            if line is not None:
                declared.append(Declaration("fp4-gemm", backend, f'mm_fp4(backend="{backend}")', True, None, (line,)))
        return tuple(declared)

    def route(self, sources: Sources, declaration: Declaration, target: Target) -> Route:
        """A library has no dispatch in front: a name leads to itself, unless it is for another format."""
        symbol = PRODUCT if declaration.area == "fp4-gemm" else declaration.name
        backend = declaration.name if declaration.area == "fp4-gemm" else ""
        answer = resolve(sources, symbol)
        if not answer.found:
            unknown = answer.existence.value == "not known"
            return Route(answer=Answer.NOT_KNOWN if unknown else Answer.FAIL, why=answer.why, proofs=answer.chain)
        found = self.gates(sources, symbol, target, backend)
        fits, why = _fits(declaration, target)
        return Route(
            answer=fits,
            why=why,
            destination=answer.home,
            proofs=(*declaration.proofs[:1], *answer.chain),
            needs=_needs(sources, answer),
            gates=found,
            hint="" if fits is Answer.PASS else f"an entry point for {target.expert_format} weights",
        )

    def gates(self, sources: Sources, symbol: str, target: Target, backend: str = "") -> tuple[Gate, ...]:
        """Every gate on the way from a symbol, for the target's card."""
        from sublight.audit.engines.flashinfer import gates

        return gates.gates(sources, symbol, target.compute_capability, backend)

    def auto(self, sources: Sources, area: str, target: Target) -> Route:
        """A library's caller chooses; of the FP4 product's backends "auto" takes what its heuristic lists first."""
        if area != "fp4-gemm":
            return Route(answer=Answer.NOT_KNOWN, why="a library: whoever calls it names the function")
        taken = []
        for declaration in self.declared(sources, area):
            found = self.gates(sources, PRODUCT, target, declaration.name)
            if all(gate.answer is not Answer.FAIL for gate in found):
                taken.append(declaration.name)
        why = f"its heuristic orders those that take this card when it runs: {', '.join(taken) or 'none'}"
        answer = Answer.NOT_KNOWN if taken else Answer.FAIL
        return Route(answer=answer, why=why, hint="" if taken else "another card: no backend of mm_fp4 takes this one")

    def pins(self, sources: Sources) -> tuple[Pin, ...]:  # noqa: ARG002 - the versions of its metadata are all it asks
        return ()

    def known_variables(self, sources: Sources) -> frozenset[str] | None:
        """Variables that its modules read by name."""
        from sublight.audit.source.whereabouts import modules, read

        found: set[str] = set()
        for dotted in modules(sources, PACKAGE):
            data = read(sources, dotted)
            if data is not None and b"FLASHINFER_" in data:
                found |= {name.decode() for name in _VARIABLE.findall(data)}
        return frozenset(found) or None


def _names(found: dict[str, Declaration]) -> set[str]:
    return {declaration.name.rpartition(".")[2] for declaration in found.values()}


def _fits(declaration: Declaration, target: Target) -> tuple[Answer, str]:
    wanted = target.expert_format.partition(" ")[0].upper()
    if declaration.area == "fp4-gemm":
        fits = wanted in ("NVFP4", "MXFP4")
        why = f"backend {declaration.name} of {PRODUCT}" if fits else f"{PRODUCT} is for FP4, not for {wanted}"
        return (Answer.PASS if fits else Answer.FAIL), why
    name = declaration.name.rpartition(".")[2].lower()
    told = [shown for part, shown in _FORMATS.items() if part in name]
    if not told:
        return Answer.PASS, f"{declaration.name}: its arguments say the format"
    if any(wanted in shown for shown in told):
        return Answer.PASS, f"{declaration.name} is for {' or '.join(told[:1])} weights"
    return Answer.FAIL, f"{declaration.name} is for {told[0]}, not for {wanted} weights"


def _needs(sources: Sources, answer: Resolution) -> tuple[Need, ...]:
    """Packages outside that importing the symbol's own module takes, and the symbol itself."""
    from sublight.audit.source.failing import outside

    symbol = Need(answer.asked, answer.chain[0].where if answer.chain else "", "module level", "ImportError")
    module = answer.home if answer.kind == "module" else answer.home.rpartition(".")[0]
    packages = (
        Need(name, proof.where, "module level", "ImportError") for name, proof in outside(sources, module).items()
    )
    return (symbol, *packages)


FLASHINFER = FlashInfer()
