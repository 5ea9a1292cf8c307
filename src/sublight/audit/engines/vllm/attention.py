"""vLLM's choice of the attention backend: an order by card and kind of attention, each class asked for its objections.

The target names no head size and no kind of attention; both follow from the model type where that settles it (latent
attention), else heads of 128 channels are taken, which the answer says. So it does of the KV cache, which is taken to
be kept in the type of activations: a checkpoint or an option may ask for FP8, and engines choose by that.
"""

import ast

from sublight.audit.engines.base import Declaration, Gate, Route
from sublight.audit.engines.vllm.declared import option
from sublight.audit.engines.vllm.formats import LATENT, LATENT_WIDTHS, SPARSE
from sublight.audit.engines.vllm.judge import Judge, Verdict, by_card, gate, returned
from sublight.audit.engines.vllm.needs import of, used
from sublight.audit.engines.vllm.walk import CURRENT, Assumed, Walk, walking
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source import objects
from sublight.audit.source.cards import Capability
from sublight.audit.source.symbols import Existence, resolve
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import Bound, Class, External, Function, Instance, Member, Unknown, Value
from sublight.audit.target import Target

REGISTRY = ("vllm.v1.attention.backends.registry", "AttentionBackendEnum")
SELECTOR = "vllm.v1.attention.selector.AttentionSelectorConfig"
FLAG = "--attention-backend"
ASKED = "validate_configuration"
_CARD = "supports_compute_capability"
_FIELDS = "the fields of a named tuple"
_LATENT_HEAD = sum(LATENT_WIDTHS.values())
_HEAD = 128


def declared(sources: Sources) -> tuple[Declaration, ...]:
    module = sources.module(REGISTRY[0])
    if module is None:
        return ()
    accepts = option(sources, FLAG)
    found = []
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == REGISTRY[1]:
            for item in node.body:
                if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                    name = item.targets[0].id
                    proof = Proof("source", module.at(item), module.line(item.lineno))
                    proofs = (proof, accepts) if accepts else (proof,)
                    found.append(Declaration("attention", name, f"{FLAG} {name}", bool(accepts) or None, True, proofs))
    return tuple(found)


def _configuration(walk: Walk, target: Target) -> Value:
    latent = target.model_type in LATENT
    known: dict[str, Value] = {
        "head_size": _LATENT_HEAD if latent else _HEAD,
        "dtype": External("torch.bfloat16"),
        "kv_cache_dtype": "auto",
        "block_size": None,
        "use_mla": latent,
        "use_sparse": target.model_type in SPARSE,
    }
    cls = walk.evaluator.name(SELECTOR)
    if not isinstance(cls, Class):
        return Unknown(f"{SELECTOR} is not in the sources")
    made = walk.evaluator.run(cls, [], known).value
    return _named(walk, made) if isinstance(made, Instance) else made


def _named(walk: Walk, made: Instance) -> Instance:
    """An object with the methods that every named tuple has."""
    fields = dict(made.attributes)
    key = f"{_FIELDS} {id(made)}"

    def replaced(_arguments: list[Value], keywords: dict[str, Value]) -> Value:
        return _named(walk, Instance(made.cls, {**fields, **keywords}, False))

    walk.calls[f"{key} as a dict"] = lambda _arguments, _keywords: dict(fields)
    walk.calls[f"{key} replaced"] = replaced
    made.attributes |= {"_asdict": External(f"{key} as a dict"), "_replace": External(f"{key} replaced")}
    return made


class _Objections(Judge):
    """Asked for a list of objections instead of a yes."""

    def __call__(self, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        passes, reason = super().__call__(arguments, keywords)
        return [] if passes else [reason or "not supported"]


def _ask(walk: Walk, target: Target, member: Value, unknown: bool) -> tuple[Value, tuple[Verdict, ...], str]:
    """What is chosen (the path of a class), who was asked, and the refusal."""
    judge = _Objections(walk, ASKED, unknown)
    platform = walk.values[CURRENT]
    configuration = _configuration(walk, target)
    heads = {} if target.rank_heads is None else {"num_heads": target.rank_heads}
    with walk.intercepted(ASKED, judge):
        outcome = walk.evaluator.call_method(platform, "get_attn_backend_cls", [member, configuration], **heads)
    return outcome.value, tuple(judge.verdicts), outcome.refusal.message if outcome.refusal else ""


def _cards(walk: Walk, cls: Class, here: Capability) -> tuple[Gate, ...]:
    """Cards a class takes by its own question for the capability."""
    _, found = objects.find(walk.evaluator, cls, _CARD)
    function = found.function if isinstance(found, Bound) else found
    if not isinstance(function, Function):
        return ()

    def ask() -> bool | None:
        value = walk.evaluator.call_method(cls, _CARD, [walk.capability]).value
        return value if isinstance(value, bool) else None

    return (gate(by_card(walk, here, ask), here, returned(function), function.where),)


def _lost(sources: Sources, path: Value) -> str:
    """What is wrong with a class that the registry names and this version does not have, "" where nothing is."""
    if not isinstance(path, str) or "." not in path:
        return ""
    found = resolve(sources, path)
    return f"it names {path}, which this version does not have" if found.existence is Existence.MISSING else ""


def route(sources: Sources, declaration: Declaration, target: Target, assumed: Assumed) -> Route:
    walk = walking(sources, target, assumed)
    enum = walk.evaluator.name(".".join(REGISTRY))
    if walk.problem or not isinstance(enum, Class):
        why = walk.problem or sources.unparsed_at(REGISTRY[0]) or f"{REGISTRY[1]} is not in the sources"
        return Route(answer=Answer.NOT_KNOWN, why=why)
    member = None if declaration.name == "auto" else enum.members.get(declaration.name)
    _, verdicts, refusal = _ask(walk, target, member, unknown=False)
    taken = next((item for item in verdicts if item.passes), None)
    latent = target.model_type in LATENT
    assumption = ", for a KV cache in the type of activations" if latent else f", for heads of {_HEAD} channels"
    if taken is not None:
        before = [item for item in verdicts[: verdicts.index(taken)] if item.passes is False]
        said = "; ".join(f"{item.name}: {item.reason}" for item in before)
        unsure = [item for item in verdicts[: verdicts.index(taken)] if item.passes is None]
        why = f"{taken.name}{assumption}" + (f"; before it: {said}" if said else "")
        if unsure:
            why = f"{unsure[0].name} or {taken.name}: {unsure[0].reason}"
        return Route(
            answer=Answer.NOT_KNOWN if unsure else Answer.PASS,
            why=why,
            destination=taken.cls.dotted,
            proofs=taken.proofs,
            needs=of(walk, (taken,), ASKED),
            gates=_cards(walk, taken.cls, target.compute_capability),
        )
    doubtful = next((item for item in verdicts if item.passes is None), None)
    if doubtful is not None:
        return Route(answer=Answer.NOT_KNOWN, why=f"{doubtful.name} {doubtful.reason}", destination=doubtful.cls.dotted)
    lost = _lost(sources, member.value) if isinstance(member, Member) else ""
    if lost:
        return Route(answer=Answer.FAIL, why=lost, proofs=declaration.proofs, hint=f"without {FLAG}")
    if not verdicts and not refusal:
        return Route(answer=Answer.NOT_KNOWN, why=f"what {declaration.name} leads to could not be told from the source")
    said = "; ".join(f"{item.name}: {item.reason}" for item in verdicts)
    return Route(
        answer=Answer.FAIL,
        why=f"refused: {said or refusal}{assumption}",
        destination=verdicts[0].cls.dotted if verdicts else "",
        proofs=verdicts[0].proofs if verdicts else declaration.proofs,
        needs=used(walk, verdicts[0].cls) if verdicts else (),
        gates=_cards(walk, verdicts[0].cls, target.compute_capability) if verdicts else (),
        hint=f"without {FLAG} vLLM takes the first that has no objection" if option(sources, FLAG) else "",
    )
