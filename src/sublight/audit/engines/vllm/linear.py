"""vLLM's choice of the kernel for NVFP4 linear layers: a list of classes, the option's names as sets of them.

A name without a kernel for this kind of layer is no error to vLLM: it warns once and chooses by itself, which is told
here with what then runs. Versions before the option chose by a variable.
"""

import ast

import msgspec

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.engines.vllm import called, linear_enum
from sublight.audit.engines.vllm.declared import named, option
from sublight.audit.engines.vllm.judge import Judge, Verdict, gates
from sublight.audit.engines.vllm.needs import of
from sublight.audit.engines.vllm.walk import Assumed, Walk, walking
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.evaluate import Outcome
from sublight.audit.source.outline import bindings
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import Class, Instance, options
from sublight.audit.target import Target

MODULE = "vllm.model_executor.kernels.linear"
SELECT = f"{MODULE}.init_nvfp4_linear_kernel"
ASKED = "is_supported"
FLAG = "--linear-backend"
VARIABLE = "VLLM_NVFP4_GEMM_BACKEND"
_TABLE = "_NVFP4_BACKEND_TO_KERNEL"


def declared(sources: Sources) -> tuple[Declaration, ...]:
    found = named(sources, "fp4-gemm", "LinearBackend", FLAG)
    if found:
        return found
    if linear_enum.is_laid_out_so(sources):
        return linear_enum.declared(sources)
    module = sources.module(MODULE)
    values = [binding.value for binding in bindings(module).get(_TABLE, ())] if module else []
    return tuple(
        Declaration(
            "fp4-gemm",
            key.value,
            f"{VARIABLE}={key.value}",
            True,
            True,
            (Proof("source", module.at(key), module.line(key.lineno)),),
        )
        for value in values
        for key in (value.keys if isinstance(value, ast.Dict) else ())
        if module and isinstance(key, ast.Constant) and isinstance(key.value, str)
    )


class _Chosen:
    def __init__(self, walk: Walk, target: Target, name: str, unknown: bool) -> None:
        judge = Judge(walk, ASKED, unknown)
        walk.wish(linear_backend=name, linear_backend_per_quant=None)
        weight_only = target.activation_format in ("BF16", "FP16") or "W4A16" in target.expert_format
        function = walk.function(SELECT)
        takes = {item.arg for item in function.node.args.args} if function else set()
        with walk.intercepted(ASKED, judge):
            given = [weight_only] if "use_a16" in takes else []
            self.outcome: Outcome = walk.run(SELECT, given)
        made = [option for option in options(self.outcome.value) if isinstance(option, Instance)]
        self.cls: Class | None = made[0].cls if len(made) == 1 else None
        self.verdicts: tuple[Verdict, ...] = tuple(judge.verdicts)


def _walk(sources: Sources, target: Target, name: str, assumed: Assumed) -> Walk:
    """Where the option does not exist yet, the variable says the name."""
    module = sources.module(MODULE)
    if name != "auto" and module is not None and _TABLE in bindings(module):
        assumed = assumed.with_variable(VARIABLE, name)
    return walking(sources, target, assumed)


def route(sources: Sources, declaration: Declaration, target: Target, assumed: Assumed) -> Route:
    if not target.expert_format.startswith("NVFP4"):
        return Route(
            answer=Answer.FAIL,
            why=f"kernels for NVFP4 layers; this checkpoint is {target.expert_format}",
            hint="an NVFP4 checkpoint of the model",
        )
    if linear_enum.is_laid_out_so(sources):
        return linear_enum.route(sources, declaration, target, assumed)
    walk = _walk(sources, target, declaration.name, assumed)
    if walk.problem or walk.function(SELECT) is None:
        why = walk.problem or sources.unparsed_at(SELECT) or f"{SELECT} is not in the sources"
        return Route(answer=Answer.NOT_KNOWN, why=why)
    chosen = _Chosen(walk, target, declaration.name, unknown=False)
    if chosen.cls is None and any(verdict.passes is None for verdict in chosen.verdicts):
        chosen = _Chosen(walk, target, declaration.name, unknown=True)
    if chosen.cls is None:
        return _failed(walk, chosen, declaration.name, target, _without_a_name(sources))
    verdict = next((item for item in reversed(chosen.verdicts) if item.cls is chosen.cls), None)
    rerouted = [event for event in chosen.outcome.of("log") if "using automatic" in str(event.value)]
    answer = Answer.PASS if verdict is None or verdict.passes else Answer.NOT_KNOWN
    why = f"{declaration.name} runs {chosen.cls.qualified}"
    if verdict is not None and verdict.passes is None:
        why += f", which {verdict.reason}"
    destination = chosen.cls.dotted
    if declaration.name == "auto":
        why = f"{chosen.cls.qualified}{_before(chosen, chosen.cls)}"
        unsure = [item for item in chosen.verdicts if item.passes is None]
        if unsure:
            answer, destination = Answer.NOT_KNOWN, unsure[0].cls.dotted
            why = f"{unsure[0].name} or {chosen.cls.qualified}: {unsure[0].reason}"
    if rerouted and declaration.name != "auto":
        return _rerouted(sources, declaration, target, assumed, _line(rerouted[-1]))
    return Route(
        answer=answer,
        why=why,
        destination=destination,
        proofs=(
            *(_line(event) for event in chosen.outcome.of("log")[-1:]),
            *(verdict.proofs if verdict else ()),
        ),
        needs=of(walk, (verdict,), ASKED) if verdict else (),
        gates=(
            *(gates(walk, verdict, ASKED, target.compute_capability, device="") if verdict else ()),
            *called.gates(walk, chosen.cls, target.compute_capability),
        ),
    )


def _rerouted(sources: Sources, declaration: Declaration, target: Target, assumed: Assumed, warning: Proof) -> Route:
    """A name that is put aside: what runs is what no name gets, as far as that can be told."""
    alone = route(sources, msgspec.structs.replace(declaration, name="auto"), target, assumed)
    return msgspec.structs.replace(
        alone,
        answer=Answer.FAIL,
        why=f"accepted, but {declaration.name} has no kernel for NVFP4 layers: runs what no name gets, {alone.why}",
        destination=alone.destination if alone.answer is Answer.PASS else "",
        proofs=(warning, *alone.proofs),
        hint=f"{FLAG if option(sources, FLAG) else VARIABLE} with a name that has one",
    )


def _line(event: object) -> Proof:
    where = str(getattr(event, "where", ""))
    return Proof("source", where, str(getattr(event, "value", ""))[:200])


def _before(chosen: _Chosen, cls: Class) -> str:
    said = [f"{item.name}: {item.reason}" for item in chosen.verdicts if item.cls is not cls and item.passes is False]
    return f"; before it: {'; '.join(said)}" if said else ""


def _without_a_name(sources: Sources) -> str:
    """How this version is asked for its own choice."""
    if option(sources, FLAG):
        return f"{FLAG} auto takes the first kernel that works here"
    return f"without {VARIABLE} the first kernel that works here is taken"


def _failed(walk: Walk, chosen: _Chosen, name: str, target: Target, hint: str) -> Route:
    if chosen.outcome.refusal is None:
        unsure = [item for item in chosen.verdicts if item.passes is None]
        why = "; ".join(f"{item.name} {item.reason}" for item in unsure)
        return Route(
            answer=Answer.NOT_KNOWN,
            why=why or f"what {name} leads to could not be told from the source",
            proofs=tuple(proof for item in unsure for proof in item.proofs),
        )
    at = chosen.outcome.refused_at
    proofs = tuple(proof for verdict in chosen.verdicts for proof in verdict.proofs)
    said = "; ".join(f"{item.name}: {item.reason}" for item in chosen.verdicts) or chosen.outcome.refusal.message
    first = chosen.verdicts[0] if chosen.verdicts else None
    return Route(
        answer=Answer.FAIL,
        why=f"refused: {said}",
        destination=first.cls.dotted if first else "",
        proofs=(*proofs, *((Proof("source", at.where, at.module.line(at.line)),) if at else ())),
        gates=gates(walk, first, ASKED, target.compute_capability, device="") if first else (),
        hint=hint,
    )
