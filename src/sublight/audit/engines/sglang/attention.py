"""Routes of attention backends: from `--attention-backend` to the class that decodes."""

from sublight.audit.engines.base import Route
from sublight.audit.engines.sglang import story
from sublight.audit.engines.sglang.arguments import Settled, launch
from sublight.audit.engines.sglang.layers import LayerWalk, Lost
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.events import Event
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import Choice, Function, Instance, Member, Value, options
from sublight.audit.target import Target

OPTIONS = frozenset(("attention_backend", "prefill_attention_backend", "decode_attention_backend"))
MODEL = "ModelConfig.from_server_args"
_REGISTRY = "sglang.srt.layers.attention.attention_registry.ATTENTION_BACKENDS"


class AttentionWalk(LayerWalk):
    """From the settled arguments to the object that decodes."""

    made: Value = None

    def _steps(self) -> None:
        wanted = chosen(self.values)
        if not isinstance(wanted, str):
            raise Lost("which backend the arguments come to could not be worked out")
        registry = self.walk.name(_REGISTRY)
        if not isinstance(registry, dict):
            raise Lost("the registry of attention backends is not where it was in other versions")
        maker = registry.get(wanted)
        if not isinstance(maker, Function):
            raise Lost(f"{wanted} is registered by no module that is loaded")
        published = Instance(None, dict(self.values), open_=True)
        known = {"server_args": published, "device": "cuda", "model_config": self.walk.facts.calls[MODEL]}
        attention = self.walk.facts.calls[MODEL].attributes.get("attention_arch")
        if isinstance(attention, Member):
            known["use_mla_backend"] = attention.name == "MLA"
        runner = Instance(None, known, open_=True)
        self.made = self._step(f"{wanted} is made", self.walk.run(maker, [runner], {}))


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
    events = list(way.last.outcome.events)
    made = [each.cls.dotted for each in options(walk.made) if isinstance(each, Instance) and each.cls is not None]
    if not made:
        return Route(answer=Answer.NOT_KNOWN, why="what the registered function makes is not known")
    now = chosen(settled.values)
    fits = name in ("auto", now)
    what = " or ".join(each.rpartition(".")[2] for each in made)
    hangs = ", which of them hangs on the model's attention" if isinstance(walk.made, Choice) else ""
    return Route(
        answer=Answer.PASS if fits else Answer.FAIL,
        why=f"{what} decodes{hangs}" if fits else f"accepted, but rewritten to {now}: {what} decodes{hangs}",
        destination=made[0],
        proofs=(*_said(settled), *_made(events, made)),
        needs=story.needs(events, story.used_packages(events)),
        gates=story.gates([event for outcome in settled.outcomes for event in outcome.events] + events),
        hint="" if fits else "another backend: this one is replaced for this model or card",
    )


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
