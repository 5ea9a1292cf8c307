"""Routes of attention backends: from `--attention-backend` to the class that decodes."""

import re

from sublight.audit.engines.base import Route
from sublight.audit.engines.sglang import checkpoint, kernels, sparse, story
from sublight.audit.engines.sglang.arguments import Settled, launch
from sublight.audit.engines.sglang.block import MODELS, modules
from sublight.audit.engines.sglang.layers import LayerWalk, Lost
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.evaluate import Evaluator, Outcome
from sublight.audit.source.events import Event
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import (
    Bound,
    Choice,
    Class,
    Function,
    Instance,
    Member,
    Unknown,
    Value,
    options,
)
from sublight.audit.target import Target

OPTIONS = frozenset(("attention_backend", "prefill_attention_backend", "decode_attention_backend"))
MODEL = "ModelConfig.from_server_args"
DECODED = "a step is decoded"
_METADATA = "metadata"  # attributes with this in their name are filled before every step
_MODES = "sglang.srt.model_executor.forward_batch_info.ForwardMode"
_REGISTRY = "sglang.srt.layers.attention.attention_registry.ATTENTION_BACKENDS"


class AttentionWalk(LayerWalk):
    """From the settled arguments to the object that decodes."""

    made: Value = None
    every_key: Proof | None = None  # where a model that selects keys is told that this backend takes them all
    alias_of = ""  # the registered name whose maker makes the backend

    def _steps(self) -> None:
        wanted = chosen(self.values)
        if not isinstance(wanted, str):
            raise Lost("which backend the arguments come to could not be worked out")
        registry = self.walk.name(_REGISTRY)
        if not isinstance(registry, dict):
            raise self._lost((_REGISTRY,), "the registry of attention backends is not where it was in other versions")
        maker = registry.get(wanted)
        if not isinstance(maker, Function):
            raise self._lost((_REGISTRY,), f"{wanted} is registered by no module that is loaded")
        published = Instance(None, dict(self.values), open_=True)
        known = {"server_args": published, "device": "cuda", "model_config": self.walk.facts.calls[MODEL]}
        if isinstance(self.walk.facts.calls[MODEL].attributes.get("attention_arch"), Member):
            known["use_mla_backend"] = self._is_latent()
        runner = Instance(None, known, open_=True)
        self.made = self._step(f"{wanted} is made", self.walk.run(maker, [runner], {}))
        self.alias_of = self._maker(registry, maker)
        if checkpoint.is_sparse(self.target):
            self.every_key = sparse.every_key(self.walk, self.made, self._batch()[-1])
        decoded = [self._decoded(each) for each in options(self.made) if isinstance(each, Instance) and each.cls]
        if decoded and all(each is not None for each in decoded):
            self._step(DECODED, next(each for each in decoded if each is not None))

    def _maker(self, registry: dict[Value, Value], maker: Function) -> str:
        """The other name whose maker the one that was asked is seen calling, "" where it makes its own."""
        called = {event.name for event in self.stages[-1].outcome.events if event.kind == "call"} - {maker.dotted}
        others = (
            str(name) for name, other in registry.items() if isinstance(other, Function) and other.dotted in called
        )
        return next(others, "")

    def _decoded(self, made: Instance) -> Outcome | None:
        """One step of decoding by a backend; None where it ends in what only a batch that is really there would set."""
        method = self.walk.attribute(made, "forward")
        if not isinstance(method, Bound):
            return None
        made.open = True
        for name, value in list(made.attributes.items()):
            if value is None and _METADATA in name:
                made.attributes[name] = Instance(None, {}, open_=True)
        outcome = self.walk.run(method, list(self._batch()), self._of_the_model())
        at, failure = outcome.refused_at, outcome.refusal
        told = at is not None and at.certain and at.name != "AttributeError" and bool(failure and failure.message)
        return outcome if failure is None or told else None

    def _batch(self) -> tuple[Value, ...]:
        """Queries, keys and values of a batch that decodes, the layer, and the batch itself."""
        modes = self.walk.name(_MODES)
        mode = modes.members.get("DECODE") if isinstance(modes, Class) else None
        batch = {"forward_mode": mode or Unknown("the mode of the batch", solid=True), "spec_info": None,
                 "encoder_lens": None, "encoder_out_cache_loc": None}  # fmt: skip
        layer = {"is_cross_attention": False, "sliding_window_size": -1, "logit_cap": 0.0, "layer_id": 0,
                 "use_irope": False, "xai_temperature_len": -1}  # fmt: skip
        keys = Instance(None, {}, open_=True)
        values = keys if self._is_latent() else Instance(None, {}, open_=True)
        return (Unknown("queries", solid=True), keys, values, Instance(None, layer, open_=True),
                Instance(None, batch, open_=True))  # fmt: skip

    def _is_latent(self) -> bool:
        attention = self.walk.facts.calls[MODEL].attributes.get("attention_arch")
        return isinstance(attention, Member) and attention.name == "MLA"

    def _of_the_model(self) -> dict[str, Value]:
        """What models with latent attention, and those with an indexer, hand over besides."""
        names = ["q_rope", "k_rope"] if self._is_latent() else []
        names += ["topk_indices"] if checkpoint.is_sparse(self.target) else []
        return {name: Unknown(name, solid=True) for name in names}


def chosen(values: object) -> Value:
    """The backend that decodes: the one for decoding where it is set, else the common one."""
    assert isinstance(values, dict)
    decode = values.get("decode_attention_backend")
    return values.get("attention_backend") if decode is None else decode


def route(sources: Sources, name: str, target: Target) -> Route:
    """Where asking for an attention backend leads; "auto" is asking for none."""
    begun = launch(sources, target, OPTIONS)
    settled = begun.settle({} if name == "auto" else {"attention_backend": name})
    if settled.reason:
        return Route(answer=Answer.NOT_KNOWN, why=f"the arguments could not be followed: {settled.reason}")
    if settled.refused is not None:
        return story.refused(settled.refused, "the arguments are checked")
    walk = AttentionWalk(begun.walk, target, settled.values)
    way = walk.follow()
    if way.reason or way.last is None:
        return Route(answer=Answer.NOT_KNOWN, why=way.reason or "nothing could be walked", proofs=_said(settled))
    if way.last.outcome.refusal is not None:
        return story.refused(way.last.outcome, way.last.name)
    events = [event for stage in way.stages for event in stage.outcome.events]
    made = [each.cls.dotted for each in options(walk.made) if isinstance(each, Instance) and each.cls is not None]
    if not made:
        return Route(answer=Answer.NOT_KNOWN, why="what the registered function makes is not known")
    working = kernels.working(way.last.outcome.events) if way.last.name == DECODED else []
    now = chosen(settled.values)
    fits = name in ("auto", now)
    what = " or ".join(each.rpartition(".")[2] for each in made)
    family = of_another_family(begun.walk, target.architecture, made[0]) if fits and name != "auto" else ""
    if family:
        why = f"{what} would decode, and is, by its name, for {family} models, of which this is none"
        return Route(answer=Answer.NOT_KNOWN, why=why, destination=made[0], proofs=_made(events, made))
    hangs = ", which of them hangs on the model's attention" if isinstance(walk.made, Choice) else ""
    inner = sparse.kernels(walk.made, settled.values)
    hangs += f" with {inner}" if inner else ""
    if walk.every_key is not None:
        hangs += f", and {sparse.EVERY_KEY}: it gives the model's indexer nothing ({walk.every_key.where})"
    if fits and walk.alias_of and name != "auto":
        hangs += f"; {name} is another name of {walk.alias_of}"
    return Route(
        answer=Answer.PASS if fits else Answer.FAIL,
        why=f"{what} decodes{hangs}" if fits else f"accepted, but rewritten to {now}: {what} decodes{hangs}",
        destination=made[0],
        proofs=(*_said(settled), *_made(events, made)),
        needs=story.called(story.needs(events, story.used_packages(events)), working),
        gates=(
            *story.gates([event for outcome in settled.outcomes for event in outcome.events] + events),
            *story.for_processors(working),
        ),
        hint="" if fits else "another backend: this one is replaced for this model or card",
        slow=sparse.EVERY_KEY if walk.every_key is not None else "",
        alias_of=walk.alias_of if fits and name != "auto" else "",
    )


def of_another_family(walk: Evaluator, architecture: str, dotted: str) -> str:
    """The family of models that a class is named after, "" where it is none, or one that this model comes from.

    Families are what the engine's own models are called by; a library that the class's module imports is none.
    """
    origin, _, name = dotted.rpartition(".")
    first = re.match(r"[A-Z][a-z]+", name)
    word = first.group().lower() if first is not None else ""
    module = walk.sources.module(origin)
    if module is None or word not in {_family(each) for each in walk.sources.submodules(MODELS)}:
        return ""  # as of most classes, so that the models are not read for them
    own = {_family(each.name) for each in modules(walk, architecture)}
    if not own or word in own:
        return ""
    return "" if re.search(rf"^\s*(?:import|from) {word}\b", module.text, re.MULTILINE) else word


def _family(dotted: str) -> str:
    """ "sglang.srt.models.qwen3_moe" -> "qwen"."""
    found = re.match(r"[a-z]+", dotted.rpartition(".")[2])
    return found.group() if found is not None else ""


def _said(settled: Settled) -> tuple[Proof, ...]:
    """What the engine says about its choice while it settles the arguments."""
    lines = [
        story.proof(event)
        for outcome in settled.outcomes
        for event in outcome.events
        if event.kind == "log" and event.certain and "attention" in str(event.value).lower()
    ]
    return tuple(dict.fromkeys(lines))[:4]


def _made(events: list[Event], made: list[str]) -> tuple[Proof, ...]:
    return tuple(story.proof(event) for event in events if event.kind == "call" and event.name in made)
