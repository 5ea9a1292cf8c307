"""The choice of the kernel for NVFP4 linear layers in versions that return a member of an enumeration, and no class.

A variable names the backend; without it the card and the installation decide.
"""

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.engines.vllm.judge import by_card, gate, text
from sublight.audit.engines.vllm.walk import Assumed, walking
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.outline import bindings
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import Class, Member, Value, options
from sublight.audit.target import Target

MODULE = "vllm.model_executor.layers.quantization.utils.nvfp4_utils"
SELECT = "select_nvfp4_linear_backend"
ENUM = "NvFp4LinearBackend"
VARIABLE = "VLLM_NVFP4_GEMM_BACKEND"


def is_laid_out_so(sources: Sources) -> bool:
    module = sources.module(MODULE)
    return module is not None and SELECT in bindings(module) and ENUM in bindings(module)


def declared(sources: Sources) -> tuple[Declaration, ...]:
    """Values of the enumeration, in its order."""
    module = sources.module(MODULE)
    if module is None or not is_laid_out_so(sources):
        return ()
    found = []
    for node in module.tree.body:
        for item in node.body if getattr(node, "name", "") == ENUM else ():  # type: ignore[attr-defined]
            value = getattr(getattr(item, "value", None), "value", None)
            if isinstance(value, str) and hasattr(item, "targets"):
                proof = Proof("source", module.at(item), module.line(item.lineno))
                found.append(Declaration("fp4-gemm", value, f"{VARIABLE}={value}", True, True, (proof,)))
    return tuple(found)


def route(sources: Sources, declaration: Declaration, target: Target, assumed: Assumed) -> Route:
    asked = declaration.name != "auto"
    walk = walking(sources, target, assumed.with_variable(VARIABLE, declaration.name) if asked else assumed)
    cls = walk.evaluator.name(f"{MODULE}.{ENUM}")
    if walk.problem or not isinstance(cls, Class):
        why = walk.problem or sources.unparsed_at(MODULE) or f"{ENUM} is not in the sources"
        return Route(answer=Answer.NOT_KNOWN, why=why)
    outcome = walk.run(f"{MODULE}.{SELECT}")
    said = tuple(Proof("source", e.where, e.module.line(e.line)) for e in outcome.of("log", "raise")[-1:])
    if outcome.refusal is not None:
        why = f"refused: {text(outcome.refusal.message) or outcome.refusal.kind}"
        hint = f"not there: {', '.join(walk.missing)}" if walk.missing else f"without {VARIABLE} vLLM chooses"
        return Route(answer=Answer.FAIL, why=why, proofs=said, hint=hint)
    names = [_value(option) for option in options(outcome.value)]
    if len(names) != 1 or not names[0]:
        doubt = next((event for event in outcome.events if event.conditions), None)
        reason = f": depends on {doubt.conditions[0].text} ({doubt.conditions[0].where})" if doubt else ""
        return Route(answer=Answer.NOT_KNOWN, why=f"{' or '.join(filter(None, names))}{reason}", proofs=said)

    open_ = [event for event in outcome.of("assert") if event.outcome is None and event.function.endswith(SELECT)]
    if open_:
        line = Proof("source", open_[0].where, open_[0].text)
        return Route(answer=Answer.NOT_KNOWN, why=f"{names[0]}, if {line.text} ({line.where})", proofs=(line,))

    def same() -> bool | None:
        again = walk.evaluator.call_name(f"{MODULE}.{SELECT}")
        values = {_value(option) for option in options(again.value)}
        return False if again.refusal or names[0] not in values else True if len(values) == 1 else None

    cards = by_card(walk, target.compute_capability, same)
    where = said[0].where if said else cls.where
    narrow = () if all(cards.values()) else (gate(cards, target.compute_capability, f"{SELECT}()", where),)
    return Route(
        answer=Answer.PASS,
        why=f"{names[0]}" if not asked else f"{declaration.name} is taken as it is",
        destination=f"{cls.dotted}.{next((m.name for m in cls.members.values() if m.value == names[0]), '')}",
        proofs=(*declaration.proofs, *said),
        gates=narrow,
    )


def _value(option: Value) -> str:
    return str(option.value) if isinstance(option, Member) else ""
