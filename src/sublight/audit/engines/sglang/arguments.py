"""What becomes of the launch arguments: refused, rewritten, or left as they are, before any kernel is chosen."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from sublight.audit.engines.base import Route
from sublight.audit.engines.sglang import checkpoint
from sublight.audit.engines.sglang.facts import PATH, facts
from sublight.audit.source.alike import Alike
from sublight.audit.source.evaluate import Checkpoint, Evaluator, Outcome
from sublight.audit.source.events import Event
from sublight.audit.source.mentions import Mentions, named_in
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import MISSING, Class, Function, Instance, Member, Unknown, Value
from sublight.audit.target import Target

SERVER_ARGS = "sglang.srt.server_args.ServerArgs"
# Every server loads these, and with them what they register, before it chooses anything.
_LOADED_AT_START = (
    "sglang.srt.layers.moe.ep_moe.layer",
    "sglang.srt.layers.moe.fused_moe_triton.layer",
    "sglang.srt.layers.quantization",
    "sglang.srt.layers.attention.attention_registry",
)
_MODEL_CONFIG = "sglang.srt.configs.model_config.ModelConfig"
# Attributes of it -> the method or property that they come from.
_ASKED = {"has_attention_sinks": "_detect_attention_sinks", "has_asymmetric_kv": "has_asymmetric_kv"}
_WIDTHS = ("head_dim", "v_head_dim", "swa_head_dim", "swa_v_head_dim")
_LAYOUT = frozenset(("moe_a2a_backend",))  # options that say how a launch is laid out; the others name a backend
_SETTLE = ("resolve_once", "resolve")  # methods that settle the arguments, where the constructor does not


class Settled(msgspec.Struct, frozen=True):
    """The arguments after everything the engine does to them.

    Attributes:
        values: option -> value; missing when it could not be followed.
        outcomes: the walks, in order.
        reason: why they could not be settled, "" when they could.
    """

    values: Mapping[str, Value]
    outcomes: tuple[Outcome, ...]
    reason: str = ""

    @property
    def refused(self) -> Outcome | None:
        return next((outcome for outcome in self.outcomes if outcome.refusal is not None), None)

    def undecided(self, option: str) -> Event | None:
        """The first open decision in a function that names the option; None when no such decision was met."""
        return next(
            (
                event
                for outcome in self.outcomes
                for event in outcome.events
                if event.kind == "branch" and event.outcome is None and named_in(event.module, event.function, option)
            ),
            None,
        )


class Launch:
    """Launches of one target: the modules that all of them load are walked once, and come back to for each."""

    def __init__(self, sources: Sources, target: Target, options: frozenset[str], loaded: tuple[str, ...]) -> None:
        self.target = target
        # Most of this file is walked, so it is parsed in one go; one that cannot be parsed is not followed at all.
        if (arguments := sources.module(SERVER_ARGS.rpartition(".")[0])) is not None:
            _ = arguments.tree
        self.model = checkpoint.model_config(target)
        self.left_out: set[str] = set()
        self.walk = Evaluator(sources, facts(sources, target, options, self.model, self.left_out))
        attention = attention_of(self.walk, self.model)
        if attention is not MISSING:
            self.model.attributes["attention_arch"] = attention
            self.model.lacks = of_other_attention(self.walk, attention)
        self.model.attributes |= heads_of(self.walk, self.model)
        self.cls = self.walk.name(SERVER_ARGS)
        self.calls = dict(self.walk.facts.calls)
        self.options = options
        self.named = options.difference(_LAYOUT)
        self.start: Alike | None = None
        self.began: Checkpoint | None = None
        self.ends: dict[tuple[str, str], str] = {}  # (name, all-to-all) -> where it led
        self.advised: dict[str, Route] = {}  # name that the engine advises -> where it leads
        if isinstance(self.cls, Class):
            written = {name: found.written.copy() for name, found in self.walk.spaces.items() if found}
            self._resolved(self._made({}).value)
            for name, found in self.walk.spaces.items():  # what that trial left behind is not part of the start
                if found is not None:
                    found.written.clear()
                    found.written.update(written.get(name, {}))
            self.walk.environment = dict(self.walk.facts.environment)
            for name in loaded:
                self.walk.name(name)
            self.began = self.walk.checkpoint()
            self.start = Alike(self.walk, self.began)

    @contextmanager
    def knowing(self, facts: Mapping[str, Any]) -> Iterator[None]:
        """While it lasts, launches know these of what they ask for at run time."""
        before = self.calls
        self.calls = {**before, **facts}
        try:
            yield
        finally:
            self.calls = before

    def settle(self, options: Mapping[str, Any]) -> Settled:
        """Settles the arguments of a launch with these options. The walk then stands where the engine would.

        A step that is walked though it knows nothing of the options, and finds nothing where a skipped one would have
        left something, is skipped from then on.
        """
        settled = self._settle(options)
        while self.began is not None and (step := self._without_its_ground(settled)):
            self.left_out.add(step)
            self.walk.back(self.began)
            self.start = Alike(self.walk, self.began)
            settled = self._settle(options)
        return settled

    def _without_its_ground(self, settled: Settled) -> str:
        """The step that fails for what another one was to leave, "" where none does."""
        at = settled.refused.refused_at if settled.refused is not None else None
        if at is None or at.name != "AttributeError" or at.function in self.left_out:
            return ""
        bare = at.function.rpartition(".")[2]
        lacks = "None has no attribute" in at.text
        return at.function if lacks and not Mentions(self.walk.sources, self.options).may(at.module, bare) else ""

    def _settle(self, options: Mapping[str, Any]) -> Settled:
        if self.start is None:
            broken = self.walk.sources.unparsed_at(SERVER_ARGS)
            return Settled({}, (), broken or f"{SERVER_ARGS} is not in the sources, or not a class")
        calls = self.walk.facts.calls
        assert isinstance(calls, dict)
        calls.clear()
        calls.update(self.calls)  # what an earlier launch published is not there yet
        names = {option: value for option, value in options.items() if self._names_one(option, value)}
        rest = tuple((option, value) for option, value in options.items() if option not in names)
        if len(set(names.values())) > 1:
            raise ValueError(f"a launch asks for one backend, not for {sorted(set(names.values()))}")
        name = next(iter(names.values()), "")

        def make(asked: str, _done: tuple[Outcome, ...]) -> Outcome:
            return self._made(dict.fromkeys(names, asked) | dict(rest))

        def work(_asked: str, done: tuple[Outcome, ...]) -> Outcome | None:
            return self._resolved(done[0].value)

        return _settled(self.start.outcomes(name, (tuple(names), rest), (make, work)))

    def _names_one(self, option: str, value: Any) -> bool:
        """Whether an option gives a backend by name, and is no switch."""
        return option in self.named and isinstance(value, str)

    def _made(self, options: Mapping[str, Any]) -> Outcome:
        assert isinstance(self.cls, Class)
        fields = {name for name, _ in self.walk.fields(self.cls)}
        layout = self.target.layout
        asked: dict[str, Any] = {
            "model_path": PATH,
            # ModelOpt's checkpoints are launched with the option; the engine finds the others' method by itself.
            "quantization": checkpoint.quantization(self.target) if self.target.method == "modelopt" else None,
            "tp_size": layout.tp,
            "ep_size": layout.ep,
            **_groups(layout.dp, fields),
            "moe_a2a_backend": self.target.a2a,
            "context_length": 8192,
            "device": "cuda",
            "random_seed": 0,
        } | dict(options)
        return self.walk.run(self.cls, [], {name: value for name, value in asked.items() if name in fields})

    def _resolved(self, made: Value) -> Outcome | None:
        """What settling the arguments comes to where the constructor leaves it to a method of their own."""
        line = made.cls.line() if isinstance(made, Instance) and made.cls is not None else []
        for name in _SETTLE:
            method = next((at.names[name] for at in line if name in at.names), None)
            if isinstance(method, Function):
                return self.walk.call_method(made, name)
        return None


def _settled(outcomes: tuple[Outcome, ...]) -> Settled:
    reason = next((outcome.gave_up for outcome in outcomes if outcome.gave_up), "")
    return Settled({} if reason else _values(outcomes[0].value), outcomes, reason)


def _groups(dp: int, fields: set[str]) -> dict[str, Any]:
    """Data-parallel attention, by the option of its own where this version has one."""
    if "attn_dp_size" in fields:
        return {"attn_dp_size": dp}
    return {"dp_size": dp, "enable_dp_attention": dp > 1}


def attention_of(walk: Evaluator, model: Instance) -> Value:
    """What kind of attention the engine takes the model to have, by its own code; MISSING when that is not found.

    It is the method of the engine's model configuration that tells multi-head latent attention by the architecture.
    """
    cls = walk.name(_MODEL_CONFIG)
    for name, method in cls.names.items() if isinstance(cls, Class) else ():
        if not isinstance(method, Function):
            continue
        lines = method.module.module.lines[method.node.lineno - 1 : method.node.end_lineno]
        if any("self.attention_arch" in line for line in lines):
            probe = Instance(cls if isinstance(cls, Class) else None, dict(model.attributes), open_=True)
            walk.call_method(probe, name)
            found = probe.attributes.get("attention_arch", MISSING)
            return found if isinstance(found, Member) else MISSING
    return MISSING


def of_other_attention(walk: Evaluator, attention: Value) -> dict[str, str]:
    """What the engine's model configuration sets for models of another kind of attention alone -> what lacks it."""
    cls = walk.name(_MODEL_CONFIG)
    if not isinstance(cls, Class) or not isinstance(attention, Member):
        return {}
    kinds = [(kind, arm) for node in ast.walk(cls.node) if isinstance(node, ast.If)
             for arm in (node.body, node.orelse) if (kind := _kind(arm))]  # fmt: skip
    theirs = {id(node): node for kind, arm in kinds if kind != attention.name for at in arm for node in ast.walk(at)}
    others = _set_on_self(theirs.values())
    kept = _set_on_self(node for node in ast.walk(cls.node) if id(node) not in theirs) | set(cls.names)
    return dict.fromkeys(sorted(others - kept), f"a model with {attention.name} attention")


def _kind(arm: list[ast.stmt]) -> str:
    """The kind of attention that a branch gives a model, "" where it gives none itself."""
    given = (at for at in arm if isinstance(at, ast.Assign) and ast.unparse(at.targets[0]) == "self.attention_arch")
    return next((ast.unparse(at.value).rpartition(".")[2] for at in given), "")


def _set_on_self(nodes: Iterable[ast.AST]) -> set[str]:
    return {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


def heads_of(walk: Evaluator, model: Instance) -> dict[str, Value]:
    """What the engine's model configuration answers about attention heads, by its own code; what it answers at all.

    Keys and values are taken to be equally wide where the model has no latent attention: whether they are stands in
    fields that hardly any configuration has.
    """
    cls = walk.name(_MODEL_CONFIG)
    if not isinstance(cls, Class):
        return {}
    width = Unknown("the width of a head")
    latent = getattr(model.attributes.get("attention_arch"), "name", "MLA") != "MHA"
    widths: dict[str, Value] = {} if latent else dict.fromkeys(_WIDTHS, width)
    probe = Instance(cls, {**model.attributes, **widths}, open_=True)
    found: dict[str, Value] = {}
    for name, method in _ASKED.items():
        if isinstance(cls.names.get(method), Function):
            found[name] = walk.attribute(probe, name) if name == method else walk.call_method(probe, method).value
    return {name: value for name, value in found.items() if isinstance(value, bool)}


def _values(made: Value) -> dict[str, Value]:
    """Options of a server-arguments object: its attributes, then what later steps declared over them, in order."""
    if not isinstance(made, Instance):
        return {}
    found = {name: value for name, value in made.attributes.items() if not name.startswith("_")}
    for name, stash in made.attributes.items():
        if name.startswith("_") and isinstance(stash, list):
            for item in stash:
                if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], dict):
                    found.update({key: value for key, value in item[1].items() if isinstance(key, str)})
                elif not isinstance(item, tuple):
                    found.update({key: Unknown("declared under something unknown") for key in _keys(item)})
    return {name: value for name, value in found.items() if value is not MISSING}


def _keys(item: Value) -> list[str]:
    for option in getattr(item, "options", ()):
        if isinstance(option, tuple) and len(option) == 2 and isinstance(option[1], dict):
            return [key for key in option[1] if isinstance(key, str)]
    return []


_LAUNCHES: "WeakKeyDictionary[Sources, dict[tuple[Target, frozenset[str]], Launch]]" = WeakKeyDictionary()


def launch(
    sources: Sources, target: Target, options: frozenset[str], loaded: tuple[str, ...] = _LOADED_AT_START
) -> Launch:
    """The launches of a target, kept for as long as the sources are. `loaded`: modules to load before any choice."""
    kept = _LAUNCHES.setdefault(sources, {})
    key = (target, options)
    if key not in kept:
        kept.clear()  # one target at a time: a walk holds every module it loaded
        kept[key] = Launch(sources, target, options, loaded)
    return kept[key]
