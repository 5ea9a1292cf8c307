"""Layers: what all walks through a layer share, from the settled arguments to the checkpoint's quantisation."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import msgspec

from sublight.audit.engines.sglang import checkpoint
from sublight.audit.source.evaluate import Evaluator, Outcome
from sublight.audit.source.values import MISSING, Class, Function, Instance, Unknown, Value
from sublight.audit.target import Target

# Where versions keep these; the first that is there counts.
_REGISTRIES = ("sglang.srt.layers.quantization.get_quantization_config",)
_PUBLISHED = ("get_global_server_args", "get_server_args", "_get_server_args")
_TOPICS = "sglang.srt.runtime_context"  # functions here give views of the arguments by topic


class Stage(msgspec.Struct, frozen=True):
    """One step of the way: what was walked, for the reader, and what it came to."""

    name: str
    outcome: Outcome


class Way(msgspec.Struct, frozen=True):
    """All steps up to the first that refuses or could not be followed.

    Attributes:
        stages: in order.
        reason: why the way was lost, "" when it was followed to its end.
    """

    stages: tuple[Stage, ...]
    reason: str = ""

    @property
    def last(self) -> Stage | None:
        return self.stages[-1] if self.stages else None


class Lost(Exception):  # noqa: N818
    """The way cannot be followed further; empty when it ends because the engine refuses."""


class LayerWalk(ABC):
    """Walks one launch. `values` are the settled arguments."""

    CALLED = "the layer is called"

    def __init__(self, walk: Evaluator, target: Target, values: Mapping[str, Value]) -> None:
        self.walk = walk
        self.target = target
        self.values = values
        self.stages: list[Stage] = []

    def follow(self) -> Way:
        try:
            self._publish()
            self._steps()
        except Lost as lost:
            return Way(tuple(self.stages), str(lost))
        return Way(tuple(self.stages))

    @abstractmethod
    def _steps(self) -> None:
        """What a launch does with the layer, step after step."""

    def _step(self, name: str, outcome: Outcome) -> Value:
        self.stages.append(Stage(name, outcome))
        if outcome.refusal is not None:
            raise Lost("")
        if outcome.gave_up:
            raise Lost(f"{name}: {outcome.gave_up}")
        return outcome.value

    def _find(self, names: tuple[str, ...], kinds: tuple[type, ...]) -> Value:
        for name in names:
            found = self.walk.name(name)
            if isinstance(found, kinds):
                return found
        return MISSING

    def _publish(self) -> None:
        """From here on every reader of the arguments sees the settled ones."""
        published = Instance(None, dict(self.values), open_=True)
        calls = self.walk.facts.calls
        assert isinstance(calls, dict)
        calls.update(dict.fromkeys(_PUBLISHED, published))
        layout = self.target.layout
        ranks = {"tp_size": layout.tp, "tp_rank": 0, "moe_ep_size": layout.ep, "moe_ep_rank": 0, "moe_dp_size": 1,
                 "moe_tp_size": layout.expert_tp, "moe_tp_rank": 0, "attn_dp_size": layout.dp, "attn_dp_rank": 0,
                 "attn_tp_size": layout.attention_tp, "attn_tp_rank": 0, "attn_cp_size": 1, "pp_size": layout.pp,
                 "pp_rank": 0, "tp_group": Unknown("a group of ranks", solid=True),
                 "moe_ep_group": Unknown("a group of ranks", solid=True)}  # fmt: skip
        calls["get_parallel"] = Instance(None, dict(self.values) | ranks, open_=True)
        bags = _bags(self.walk, self.values)
        calls.update({f"{_TOPICS}.get_{name}": bag for name, bag in bags.items() if name != "parallel"})

    def _lost(self, names: tuple[str, ...], otherwise: str) -> Lost:
        """Why none of these names is what it was in other versions: a file that cannot be parsed says it best."""
        return Lost(self.walk.sources.unparsed_at(*names) or otherwise)

    def _initialise(self, names: tuple[str, ...]) -> None:
        """Stores the engine's choice of backends, as its start-up does."""
        found = self._find(names, (Function,))
        if not isinstance(found, Function):
            raise self._lost(names, f"{names[0].rpartition('.')[2]} is not where it was in other versions")
        published = self.walk.facts.calls[_PUBLISHED[0]]
        arguments = [published] if found.node.args.args else []
        self._step("the choice of backends is stored", self.walk.run(found, arguments, {}))

    def _quantization(self) -> Value:
        name = checkpoint.quantization(self.target)
        if name is None:
            return None
        registry = self._find(_REGISTRIES, (Function,))
        if registry is MISSING:
            raise self._lost(_REGISTRIES, "the registry of quantisation methods is not where it was in other versions")
        cls = self._step(f"quantisation {name}", self.walk.run(registry, [name], {}))
        if not isinstance(cls, Class):
            what = f"{cls.why}" if isinstance(cls, Unknown) else "something that is no class of the sources"
            raise Lost(f"quantisation {name} is registered as something that could not be read: {what}")
        made = self.walk.call_method(cls, "from_config", [checkpoint.configuration(self.target)])
        return self._step("the checkpoint's quantisation is read", made)

    def _weights(self, layer: Instance) -> None:
        method = self.walk.attribute(layer, "quant_method")
        if not isinstance(method, Instance):
            raise Lost("the layer's quantisation method is not known")
        outcome = self.walk.call_method(method, "process_weights_after_loading", [layer])
        self._step("weights are prepared", outcome)


def _bags(walk: Evaluator, values: Mapping[str, Value]) -> dict[str, Instance]:
    """Views of the settled arguments by topic, where this version has topics (`get_exec().moe.runner_backend`)."""
    cls = walk.name("sglang.srt.server_args.ServerArgs")
    paths = cls.names.get("_NS_BY_FIELD") if isinstance(cls, Class) else None
    bags: dict[str, Instance] = {}
    if not isinstance(paths, dict):
        return bags
    for field, path in paths.items():
        if not isinstance(path, str) or field not in values:
            continue
        first, *rest = path.split(".")
        bag = bags.setdefault(first, Instance(None, {}, open_=True))
        for part in rest:
            inner = bag.attributes.setdefault(part, Instance(None, {}, open_=True))
            bag = inner if isinstance(inner, Instance) else bag
        bag.attributes[field] = values[field]
    return bags
