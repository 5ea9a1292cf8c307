"""An oracle of vLLM's: the module that chooses the experts' kernel for one weight format, walked for a target.

Where to look: `fused_moe/oracle/`, one module a format, with a `select_..._backend` and a `map_..._backend`. Names of
formats, of quantisation keys and of fields are vLLM's; everything else is walked.
"""

import ast

import msgspec

from sublight.audit.engines.vllm.formats import Scheme, activation_of
from sublight.audit.engines.vllm.judge import Judge, Verdict, text
from sublight.audit.engines.vllm.walk import Walk
from sublight.audit.source.evaluate import Outcome
from sublight.audit.source.outline import bindings
from sublight.audit.source.tree import Module, Sources
from sublight.audit.source.values import Class, External, Instance, Member, Unknown, Value, options
from sublight.audit.target import Target

FUSED = "vllm.model_executor.layers.fused_moe"
ORACLES = f"{FUSED}.oracle"
KEYS = "vllm.model_executor.layers.quantization.utils.quant_utils"
ASKED = "is_supported_config"


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
        "activation": _activation(walk, activation_of(target)),
        "device": "cuda",
        "moe_parallel_config": parallel,
        "in_dtype": External("torch.bfloat16"),
        "moe_backend": backend,
        "has_bias": False,
        "is_lora_enabled": False,
        "routing_method": Unknown("the routing method of the model"),
        "swiglu_limit": Unknown("the clamp of the model") if target.swiglu_limit else None,
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
        otherwise = f"{ORACLES}.{scheme.oracle} has no function that selects a backend: this version chooses elsewhere"
        return walk.sources.unparsed_at(f"{ORACLES}.{scheme.oracle}") or otherwise
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
