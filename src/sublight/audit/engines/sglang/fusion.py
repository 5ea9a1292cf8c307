"""Routes of all-reduces that are fused with the norm behind them: FlashInfer's, where the engine leaves sums to a norm.

Where to look: one function answers whether a sum of so many tokens is fused, by the card, the layout and an option. Its
parts are worked out one by one, so that the one that says no is named; then the function that sums and norms is walked.
"""

import ast
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from sublight.audit.engines.base import Gate, Need, Route
from sublight.audit.engines.sglang import block, kernels, story
from sublight.audit.engines.sglang.arguments import Launch, Settled
from sublight.audit.engines.sglang.communicators import option
from sublight.audit.engines.sglang.declared import holders, listed
from sublight.audit.engines.sglang.layers import LayerWalk
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.events import Event
from sublight.audit.source.machine import Raising
from sublight.audit.source.operators import truth
from sublight.audit.source.tree import Module, Sources
from sublight.audit.source.values import Function, Instance, Scope, Unknown, Value

# Where versions keep these; the first that is there counts.
_FIELDS = ("flashinfer_allreduce_fusion_backend", "enable_flashinfer_allreduce_fusion")
_DECIDERS = ("sglang.srt.layers.layer_boundary.residual.add_norm.flashinfer_ar_fusion_applies",
             "sglang.srt.layers.communicator.apply_flashinfer_allreduce_fusion")  # fmt: skip
LIBRARY = "sglang.srt.layers.flashinfer_comm_fusion"
_CHOOSER = f"{LIBRARY}.resolve_flashinfer_allreduce_fusion_backend"
_SUMMER = f"{LIBRARY}.flashinfer_allreduce_residual_rmsnorm"
_NAME = "flashinfer_fusion"  # the option without its verb, and without what the area says
_DEFAULT = "auto"  # the choice that names no backend
# What models name that leave their sums to the norm behind them.
_LEAVING = ("LayerCommunicator", "layer_boundary", "allreduce_fusion")


class Fused(msgspec.Struct, frozen=True):
    """One value of the option: its name in the audit, what a user types, and where it is declared."""

    name: str
    flag: str
    options: tuple[tuple[str, bool | str], ...]
    proof: Proof


@lru_cache(maxsize=2)
def ways(sources: Sources) -> tuple[Fused, ...]:
    """Every choice of this version's option; a switch is one."""
    for field in _FIELDS:
        for module in holders(sources, field):
            found = listed(sources, option(field), field)
            if found:
                return tuple(
                    Fused(f"{_NAME} {each.value}", f"{option(field)} {each.value}", ((field, str(each.value)),),
                          Proof("source", each.where, each.text))
                    for each in found if isinstance(each.value, str)
                )  # fmt: skip
            return (Fused(_NAME, option(field), ((field, True),), _annotated(module, field)),)
    return ()


def _annotated(module: Module, field: str) -> Proof:
    line = next(n for n, text in enumerate(module.lines, 1) if text.strip().startswith(f"{field}:"))
    return Proof("source", f"{module.shown}:{line}", module.line(line))


def route(begun: Launch, way: Fused) -> Route:
    """Where asking for a fused sum leads."""
    settled = begun.settle(dict(way.options))
    if settled.reason:
        return Route(answer=Answer.NOT_KNOWN, why=f"the arguments could not be followed: {settled.reason}")
    if settled.refused is not None:
        return story.refused(settled.refused, "the arguments are checked")
    field, asked = way.options[0]
    now = settled.values.get(field)
    if now in (None, False):
        lines = tuple(story.proof(event) for event in _written(settled, field))
        return Route(answer=Answer.FAIL, why=f"accepted, but set back to {now} when the arguments are settled",
                     proofs=(way.proof, *lines[-2:]), hint="a launch without it: sums and norms run apart")  # fmt: skip
    return _told(begun, settled, field, asked, way.proof)


def of_a_launch(begun: Launch, settled: Settled) -> Route | None:
    """The fused sum of a launch that asked for none, where the engine switches it on and it is not refused."""
    for way in ways(begun.walk.sources)[:1]:
        field, _ = way.options[0]
        now = settled.values.get(field)
        if now not in (None, False):
            lines = _written(settled, field)
            proof = story.proof(lines[-1]) if lines else way.proof
            found = _told(begun, settled, field, now if isinstance(now, str) else True, proof)
            return None if found.answer is Answer.FAIL else found
    return None


def _written(settled: Settled, field: str) -> list[Event]:
    return [
        event
        for outcome in settled.outcomes
        for event in outcome.events
        if event.certain and event.kind in ("write", "log") and field in event.module.line(event.line)
    ]


class _Part(msgspec.Struct, frozen=True):
    """One part of the decision: how it comes out, None where that is not known."""

    text: str
    where: str
    holds: bool | None


class FusionWalk(LayerWalk):
    """From the settled options to the library's call.

    Attributes:
        parts: of the decision, in order.
        lost: why the way was lost, "" when it was not.
    """

    SUMMED = "a sum is fused"
    CHOSEN = "the fused kernel is chosen"

    def __init__(self, begun: Launch, values: Mapping[str, Value]) -> None:
        super().__init__(begun.walk, begun.target, values)
        self.parts: list[_Part] = []
        self.lost = self.follow().reason

    @property
    def against(self) -> _Part | None:
        """The part that says no: the card's first."""
        no = [part for part in self.parts if part.holds is False]
        return next((part for part in no if story.of_the_card(part.text)), no[0] if no else None)

    @property
    def open_(self) -> _Part | None:
        return next((part for part in self.parts if part.holds is None), None)

    def _steps(self) -> None:
        self.walk.kept.clear()
        decider = self._find(_DECIDERS, (Function,))
        if not isinstance(decider, Function):
            why = "the function that decides whether a sum is fused is not where it was in other versions"
            raise self._lost(_DECIDERS, why)
        self.parts = self._decided(decider)
        if self.against is not None or self.open_ is not None:
            return
        backend: Value = _DEFAULT
        chooser = self.walk.name(_CHOOSER)
        if isinstance(chooser, Function):
            given = [self.walk.facts.calls["get_server_args"]] if chooser.node.args.args else []
            backend = self._step(self.CHOSEN, self.walk.run(chooser, given, {}))
        calls = self.walk.facts.calls
        assert isinstance(calls, dict)
        calls |= {
            "ensure_workspace_initialized": True,
            "_get_workspace_manager": Instance(None, {"backend": backend, "workspace": Unknown("it", True)}, True),
        }
        summer = self.walk.name(_SUMMER)
        if not isinstance(summer, Function):
            raise self._lost((_SUMMER,), f"{_SUMMER.rpartition('.')[2]} is not where it was in other versions")
        tensors: dict[str, Value] = {
            name: Instance(None, {"shape": (1, Unknown("the width"))}, True)
            for name in ("input_tensor", "residual", "weight")
        }
        self._step(self.SUMMED, self.walk.run(summer, [], tensors))

    def _decided(self, decider: Function) -> list[_Part]:
        """The parts of the function's answer, each worked out for one token."""
        returned = [node.value for node in ast.walk(decider.node) if isinstance(node, ast.Return) and node.value]
        scope = Scope(decider.module, decider.module.scope)
        scope.names |= {each.arg: 1 for each in decider.node.args.args}
        found = []
        for whole in returned[-1:]:
            both = isinstance(whole, ast.BoolOp) and isinstance(whole.op, ast.And)
            for part in whole.values if both else [whole]:  # type: ignore[attr-defined]
                try:
                    holds = truth(self.walk.value(part, scope))
                except Raising:
                    holds = None
                found.append(_Part(ast.unparse(part), decider.module.module.at(part), holds))
        return found


def _told(begun: Launch, settled: Settled, field: str, asked: bool | str, proof: Proof) -> Route:
    walk = FusionWalk(begun, settled.values)
    if walk.against is not None:
        return _refused(begun, walk, settled, field, asked, proof)
    if walk.open_ is not None:
        why = f"depends on {walk.open_.text} ({walk.open_.where}), which could not be worked out"
        return Route(
            answer=Answer.NOT_KNOWN, why=why, proofs=(proof, Proof("source", walk.open_.where, walk.open_.text))
        )
    last = walk.stages[-1] if walk.stages else None
    if last is not None and last.outcome.refusal is not None:
        return story.refused(last.outcome, last.name)
    if walk.lost or last is None:
        return Route(answer=Answer.NOT_KNOWN, why=walk.lost or "nothing could be walked", proofs=(proof,))
    called = [event for event in last.outcome.events if event.kind == "call" and kernels.root(event) == "flashinfer"]
    passed = tuple(Gate(Answer.PASS, part.text, Proof("source", part.where, part.text)) for part in walk.parts
                   if story.of_the_card(part.text))  # fmt: skip
    if not called:
        return Route(answer=Answer.NOT_KNOWN, why="the fused sum was followed and no call of FlashInfer's was seen",
                     proofs=(proof,), gates=passed)  # fmt: skip
    kernel = called[-1]
    brought = [event for event in begun.walk.events if event.kind == "import" and kernel.name.startswith(event.name)]
    brought = [event for event in brought if event.name.partition(".")[0] == "flashinfer"]
    by = brought[-1] if brought else kernel
    leaves = _leaves_its_sums(begun)
    said = f"{kernel.name} sums where a norm follows, fused with it"
    return Route(
        answer=Answer.PASS if leaves else Answer.NOT_KNOWN,
        why=said if leaves else f"{said}; the model's own code was not seen to leave its sums to a norm",
        destination=kernel.name,
        proofs=(proof, story.proof(kernel)),
        needs=(Need(kernel.name, by.where, by.how or "lazy", by.on_failure or "ImportError"),),
        gates=passed,
    )


def _refused(begun: Launch, walk: FusionWalk, settled: Settled, field: str, asked: bool | str, proof: Proof) -> Route:
    """No sum is fused this way. A part that holds for another choice of the option says that this one has its own."""
    no = walk.against
    assert no is not None
    line = Proof("source", no.where, no.text)
    if isinstance(asked, str) and asked != _DEFAULT and not story.of_the_card(no.text):
        other = FusionWalk(begun, {**settled.values, field: _DEFAULT}).against
        if other is None or other.where != no.where:
            why = f"it has a way of its own, which was not followed: the common one needs {no.text}"
            return Route(answer=Answer.NOT_KNOWN, why=why, proofs=(proof, line))
    gates = (Gate(Answer.FAIL, no.text, line),) if story.of_the_card(no.text) else ()
    return Route(answer=Answer.FAIL, why=f"accepted, but no sum is fused: {no.text} does not hold here",
                 proofs=(proof, line), gates=gates, hint="a launch without it: sums and norms run apart")  # fmt: skip


def _leaves_its_sums(begun: Launch) -> bool:
    """Whether the model's own code, or that of a model it takes classes from, names what leaves sums to a norm."""
    modules = block.modules(begun.walk, begun.target.architecture)
    return any(word in module.text for module in modules for word in _LEAVING)
