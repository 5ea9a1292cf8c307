"""vLLM's choice of the experts' kernel: one function a weight format, which asks classes in an order it edits itself.

Where to look: `fused_moe/oracle/`, one module a format, with a `select_..._backend` and a `map_..._backend`. Names of
formats, of quantisation keys and of fields are vLLM's; everything else is walked.
"""

import ast

import msgspec

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.engines.vllm.formats import SIXTEEN_BITS, Scheme, schemes_of
from sublight.audit.engines.vllm.judge import Judge, Verdict, gates, text
from sublight.audit.engines.vllm.needs import asked_by, of, switches_for
from sublight.audit.engines.vllm.walk import Assumed, Walk, walking
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.evaluate import Outcome
from sublight.audit.source.outline import bindings
from sublight.audit.source.tree import Module, Sources
from sublight.audit.source.values import Class, External, Instance, Member, Unknown, Value, options
from sublight.audit.target import Target

FUSED = "vllm.model_executor.layers.fused_moe"
ORACLES = f"{FUSED}.oracle"
KEYS = "vllm.model_executor.layers.quantization.utils.quant_utils"
ASKED = "is_supported_config"
FLAG = "--moe-backend"


class Choice(msgspec.Struct, frozen=True):
    """What a choice came to.

    Attributes:
        backend: the member of the oracle's enumeration, "" when nothing was chosen.
        cls: the class that runs.
        verdicts: every candidate that was asked, in order.
        refusal: the message of the exception it ended with.
        outcome: the walk.
    """

    backend: str
    cls: Class | None
    verdicts: tuple[Verdict, ...]
    refusal: str
    outcome: Outcome


def oracle(sources: Sources, scheme: Scheme) -> tuple[Module, str, str] | None:
    """The module that chooses for a format, its selecting function, and its mapping function ("" for none)."""
    module = sources.module(f"{ORACLES}.{scheme.oracle}")
    if module is None:
        return None
    names = [name for name, found in bindings(module).items() if isinstance(found[0].node, ast.FunctionDef)]
    selects = [name for name in names if name.startswith("select_") and name.endswith("_backend")]
    maps = [name for name in names if name.startswith("map_") and name.endswith("_backend")]
    if not selects:
        return None
    # One module may choose for one model besides; the general function is the one that is named after the format.
    return module, min(selects, key=len), maps[0] if maps else ""


def configuration(walk: Walk, target: Target, backend: str) -> Value:
    """The layer's configuration as vLLM would make it for the target; what the target does not say is unknown."""
    shape, layout = target.shape, target.layout
    evaluator = walk.evaluator
    experts = shape.experts * layout.ep if shape else None
    parallel = evaluator.instance(
        f"{FUSED}.config.FusedMoEParallelConfig",
        {
            "tp_size": layout.expert_tp,
            "dp_size": layout.dp,
            "ep_size": layout.ep,
            "pcp_size": 1,
            "sp_size": 1,
            "tp_rank": 0,
            "dp_rank": 0,
            "ep_rank": 0,
            "pcp_rank": 0,
            "use_ep": layout.ep > 1,
            "all2all_backend": "allgather_reducescatter" if target.a2a == "none" else target.a2a,
            "enable_eplb": False,
        },
    )
    known: dict[str, Value] = {
        "activation": _activation(walk, target.activation),
        "device": "cuda",
        "moe_parallel_config": parallel,
        "in_dtype": External("torch.bfloat16"),
        "moe_backend": backend,
        "has_bias": False,
        "is_lora_enabled": False,
        "routing_method": Unknown("the routing method of the model"),
        "swiglu_limit": Unknown("the clamp of the model") if target.activation == "swigluoai" else None,
    }
    if shape and experts:
        known |= {
            "num_experts": experts,
            "num_logical_experts": experts,
            "num_local_experts": shape.experts,
            "experts_per_token": shape.top_k,
            "hidden_dim": shape.hidden,
            "intermediate_size": shape.width * layout.expert_tp,
            "intermediate_size_per_partition": shape.width,
        }
    cls = evaluator.name(f"{FUSED}.config.FusedMoEConfig")
    if not isinstance(cls, Class):
        return evaluator.instance(f"{FUSED}.config.FusedMoEConfig", known)
    made = evaluator.run(cls, [], dict(known))
    if not isinstance(made.value, Instance):
        return Instance(cls, known, True)
    made.value.attributes |= {name: value for name, value in known.items() if name in made.value.attributes}
    made.value.open = True
    return made.value


def _activation(walk: Walk, name: str) -> Value:
    """vLLM's member for an activation; the plain name in versions that have no such enumeration."""
    cls = walk.evaluator.name(f"{FUSED}.activation.MoEActivation")
    if not isinstance(cls, Class):
        return name
    return next(
        (m for m in cls.members.values() if m.value == name or m.name.lower() == name), Unknown(f"activation {name}")
    )


def choose(walk: Walk, target: Target, scheme: Scheme, backend: str, unknown: bool) -> Choice | str:
    """Walks the selecting function; a string says why there is none to walk."""
    found = oracle(walk.sources, scheme)
    if found is None:
        return f"{ORACLES}.{scheme.oracle} has no function that selects a backend: this version chooses elsewhere"
    module, select, _ = found
    function = walk.function(f"{module.name}.{select}")
    if function is None:
        return f"{module.name}.{select} is no function"
    names = [item.arg for item in [*function.node.args.args, *function.node.args.kwonlyargs]]
    given: dict[str, Value] = {
        names[0]: configuration(walk, target, backend),
        "weight_key": walk.evaluator.name(f"{KEYS}.{scheme.weights}") if scheme.weights else None,
        "activation_key": walk.evaluator.name(f"{KEYS}.{scheme.activations}") if scheme.activations else None,
        "allow_vllm_cutlass": target.method == "compressed-tensors",
        "may_have_bias": False,
    }
    words = {
        "{weight_key}x{activation_key}": f"{scheme.weights} x {scheme.activations or 'none'}",
        "{weight_key}xNone": f"{scheme.weights} x none",
        "{moe_config.moe_parallel_config}": "of this layout",
    }
    judge = Judge(walk, ASKED, unknown, words)
    with walk.intercepted(ASKED, judge):
        outcome = walk.run(f"{module.name}.{select}", **{name: given[name] for name in names if name in given})
    member, cls = _chosen(outcome.value)
    refusal = text(outcome.refusal.message) if outcome.refusal else ""
    for name, word in words.items():
        refusal = refusal.replace(name, word)
    return Choice(member, cls, tuple(judge.verdicts), refusal, outcome)


def _chosen(value: Value) -> tuple[str, Class | None]:
    """The member and class of a `(backend, class)`; of several alternatives the member they share."""
    pairs = [option for option in options(value) if isinstance(option, tuple) and option]
    members = {pair[0].name for pair in pairs if isinstance(pair[0], Member)}
    classes = [pair[1] for pair in pairs if len(pair) > 1 and isinstance(pair[1], Class)]
    if len(members) != 1 or len(pairs) != len(options(value)):
        return "", None
    return members.pop(), classes[0] if classes else None


def route(sources: Sources, declaration: Declaration, target: Target, assumed: Assumed) -> Route:
    """Where `--moe-backend NAME` leads."""
    return _agreed(target, [_route(sources, declaration, target, scheme, assumed) for scheme in schemes_of(target)])


def _agreed(target: Target, routes: list[Route]) -> Route:
    """The one answer of all that the checkpoint may be; not known, with each, where they differ."""
    if not routes:
        return Route(answer=Answer.NOT_KNOWN, why=f"no oracle of vLLM's is known for {target.expert_format} experts")
    first, other = routes[0], routes[-1]
    if (first.answer, first.destination) == (other.answer, other.destination):
        return first
    why = f"with static activation scales: {first.why}; with dynamic ones: {other.why}"
    return msgspec.structs.replace(first, answer=Answer.NOT_KNOWN, why=why, proofs=(*first.proofs, *other.proofs))


def _route(sources: Sources, declaration: Declaration, target: Target, scheme: Scheme, assumed: Assumed) -> Route:
    if declaration.selectable is False:
        return Route(answer=Answer.FAIL, why=declaration.note or "no option takes this name", proofs=declaration.proofs)
    walk = walking(sources, target, assumed)
    if walk.problem:
        return Route(answer=Answer.NOT_KNOWN, why=walk.problem)
    choice = choose(walk, target, scheme, declaration.name, unknown=False)
    if isinstance(choice, str):
        return Route(answer=Answer.NOT_KNOWN, why=choice)
    if choice.cls is None and walk.missing and assumed != Assumed():
        ideal = _route(sources, declaration, target, scheme, Assumed())
        if ideal.answer is not Answer.FAIL:
            return _hidden(walk, ideal, declaration.name)
    if choice.cls is None and any(verdict.passes is None for verdict in choice.verdicts):
        hopeful = choose(walk, target, scheme, declaration.name, unknown=True)
        choice = hopeful if not isinstance(hopeful, str) and hopeful.cls is not None else choice
    if choice.cls is not None:
        return _taken(walk, choice, declaration.name, target)
    return _refused(walk, choice, declaration.name, target)


def _hidden(walk: Walk, ideal: Route, name: str) -> Route:
    """The engine does not offer a kernel that the card could run, because its own test of the installation says no."""
    lacking = ", ".join(dict.fromkeys(walk.missing.values()))
    switches = switches_for(walk, tuple(walk.missing))
    why = f"{name} is not offered here: {lacking}. The card is no obstacle: with it, {ideal.why}"
    hint = f"install what is missing, or set {' or '.join(switches)} where its code is there" if switches else ""
    return msgspec.structs.replace(
        ideal,
        answer=Answer.FAIL,
        why=why,
        proofs=(*ideal.proofs, *(Proof("source", need.where, need.symbol) for need in asked_by(walk))),
        hint=hint or "install what is missing",
    )


def _taken(walk: Walk, choice: Choice, name: str, target: Target) -> Route:
    verdict = next((item for item in reversed(choice.verdicts) if item.cls is choice.cls), None)
    cls = choice.cls
    assert cls is not None
    proofs = _way(walk, choice, name) + (verdict.proofs if verdict else ())
    found = gates(walk, verdict, ASKED, target.compute_capability) if verdict else ()
    needs = of(walk, (verdict,) if verdict else (), ASKED)
    if verdict is not None and verdict.passes is None:
        why = f"{name} leads to {cls.qualified}; whether it takes this layer {verdict.reason}"
        return Route(answer=Answer.NOT_KNOWN, why=why, destination=cls.dotted, proofs=proofs, needs=needs, gates=found)
    why = f"{name} is {choice.backend}, which runs {cls.qualified}"
    if others := [item for item in choice.verdicts if item.cls is not cls]:
        why += f" ({_said(others[0])})"
    return Route(answer=Answer.PASS, why=why, destination=cls.dotted, proofs=proofs, needs=needs, gates=found)


def _refused(walk: Walk, choice: Choice, name: str, target: Target) -> Route:
    at = choice.outcome.refused_at
    end = (Proof("source", at.where, at.module.line(at.line)),) if at else ()
    asked = choice.verdicts
    if not choice.refusal and choice.outcome.gave_up:
        return Route(answer=Answer.NOT_KNOWN, why=choice.outcome.gave_up)
    if not choice.refusal:
        return Route(answer=Answer.NOT_KNOWN, why=_open(choice, name))
    proofs = tuple(proof for verdict in asked for proof in verdict.proofs)
    found = gates(walk, asked[0], ASKED, target.compute_capability) if asked else ()
    why = f"refused: {choice.refusal}"
    if asked and not any(verdict.reason and verdict.reason in why for verdict in asked):
        why = f"{why} ({'; '.join(_said(verdict) for verdict in asked)})"
    hint = _hint(walk, asked, target)
    return Route(
        answer=Answer.FAIL,
        why=why,
        destination=asked[0].cls.dotted if asked else "",
        proofs=(*proofs, *end),
        needs=of(walk, asked, ASKED),
        gates=found,
        hint=hint,
    )


def _open(choice: Choice, name: str) -> str:
    """Why a choice has no one end: what it may come to, and what that hangs on."""
    pairs = [option for option in options(choice.outcome.value) if isinstance(option, tuple) and option]
    names = dict.fromkeys(pair[0].name for pair in pairs if isinstance(pair[0], Member))
    doubt = next((event for event in choice.outcome.of("branch") if event.outcome is None), None)
    if not names or doubt is None:
        return f"what {name} leads to could not be told from the source"
    return f"{' or '.join(reversed(names))}: hangs on {doubt.text} ({doubt.where})"


def _hint(walk: Walk, asked: tuple[Verdict, ...], target: Target) -> str:
    if walk.missing:
        return f"not there: {', '.join(list(walk.missing)[:3])}"
    if any("quantization scheme" in verdict.reason for verdict in asked) and target.activation_format in SIXTEEN_BITS:
        return (
            "this checkpoint is weight-only (16-bit activations): an export with quantised activations would be taken"
        )
    return "--moe-backend auto takes the first kernel that supports this configuration"


def _said(verdict: Verdict) -> str:
    lacking = f" ({', '.join(verdict.lacking)})" if verdict.lacking and verdict.passes is False else ""
    return f"{verdict.name}: {verdict.reason}{lacking}" if verdict.reason else verdict.name


def _way(walk: Walk, choice: Choice, name: str) -> tuple[Proof, ...]:
    """The entry that gives a name its backend, the import of the class, and the line that settles on it."""
    found = []
    calls = [event.name for event in choice.outcome.of("call") if event.name.startswith(ORACLES)]
    mapped = next((walk.function(called) for called in calls if ".map_" in called), None)
    for node in ast.walk(mapped.node) if mapped else ():
        if mapped and isinstance(node, ast.Constant) and node.value == name:
            found.append(Proof("source", mapped.module.module.at(node), mapped.module.module.line(node.lineno)))
            break
    dotted = choice.cls.dotted if choice.cls else ""
    led = [event for event in choice.outcome.of("import") if event.name == dotted]
    said = [event for event in choice.outcome.of("log") if "backend" in str(event.value)]
    found += [Proof("source", event.where, event.module.line(event.line)) for event in (*led[-1:], *said[-1:])]
    return tuple(found)


def auto(sources: Sources, target: Target, assumed: Assumed) -> Route:
    """What runs without the option: in vLLM's order for this card the first candidate that takes the configuration."""
    return _agreed(target, [_auto(sources, target, scheme, assumed) for scheme in schemes_of(target)])


def _auto(sources: Sources, target: Target, scheme: Scheme, assumed: Assumed) -> Route:
    walk = walking(sources, target, assumed)
    if walk.problem:
        return Route(answer=Answer.NOT_KNOWN, why=walk.problem)
    choice = choose(walk, target, scheme, "auto", unknown=False)
    if isinstance(choice, str):
        return Route(answer=Answer.NOT_KNOWN, why=choice)
    hopeful = choose(walk, target, scheme, "auto", unknown=True)
    if choice.cls is None:
        return _refused(walk, choice, "auto", target)
    before = [item for item in choice.verdicts if item.cls is not choice.cls]
    passed_over = "; ".join(_said(item) for item in before if item.passes is False)
    verdict = next(item for item in choice.verdicts if item.cls is choice.cls)
    found = gates(walk, verdict, ASKED, target.compute_capability)
    unsure = not isinstance(hopeful, str) and hopeful.backend != choice.backend
    why = f"{choice.backend} ({choice.cls.qualified})" + (f"; before it: {passed_over}" if passed_over else "")
    if unsure and not isinstance(hopeful, str):
        doubt = next((item.reason for item in choice.verdicts if item.passes is None), "")
        why = f"{hopeful.backend} or {choice.backend}: {doubt}"
    return Route(
        answer=Answer.NOT_KNOWN if unsure else Answer.PASS,
        why=why,
        destination=(hopeful.cls or choice.cls).dotted
        if unsure and not isinstance(hopeful, str)
        else choice.cls.dotted,
        proofs=_way(walk, choice, "") + verdict.proofs,
        needs=of(walk, (verdict,), ASKED),
        gates=found,
    )
