"""The rungs "executed", "correct" and "fast": from a log, from a trace, or from a trial on a GPU; never from reading.

A trial is a small call of one kernel in a process of its own, its output held against the oracle, then timed. It is
made only where somebody asked for it, on the very card that is judged for, of a backend whose name leads to that
kernel; what reading says against the kernel itself, a call may disprove. Packages offer trials through the entry-point
group `sublight.trials`: "ENGINE.AREA.NAME" -> an object of the protocol below.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.kernelnames import is_own, labels_of
from sublight.audit.ladder import Answer, Proof, Rung, Step, passed, unknown
from sublight.audit.log.areas import executed_in, names_backend
from sublight.audit.log.choices import asked_moe_backend
from sublight.audit.log.record import EngineLog
from sublight.audit.origin import Origin, of_log, of_trace
from sublight.audit.replies import Card
from sublight.audit.scene import Scene
from sublight.errors import SublightError
from sublight.facts.gpu import get_gpu
from sublight.registry import Registry
from sublight.units import counted

TRIALS = Registry(
    "trial of a backend",
    "sublight.trials",
    {
        "sglang.moe.marlin": "sublight.trials.moe:SGLANG_MARLIN",
        "vllm.moe.humming": "sublight.trials.moe:VLLM_HUMMING",
        "vllm.moe.marlin": "sublight.trials.moe:VLLM_MARLIN",
    },
)
NO_GPU = "no GPU was there to run it on"
_LAST = (Rung.EXECUTED, Rung.CORRECT, Rung.FAST)
_LEADS_ELSEWHERE = (Rung.DECLARED, Rung.REACHABLE)


class KernelTrial(Protocol):
    """Runs one kernel, at the target's shard shape and format, on the card of the machine it runs on."""

    def fits(self, route: Route) -> bool:
        """Whether this way ends at the kernel that it calls; names of backends say only what was asked for."""
        ...

    def steps(self, scene: Scene, route: Route) -> tuple[Step, Step, Step]:
        """The answers of "executed", "correct" and "fast", in this order. A crash or a hang is a "no", not an error.

        `scene.trying` says where and for how long.
        """
        ...


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen running: kernels of a trace by the label of their backend, and steps that a log proves.

    Attributes:
        kernels: by area: whose they are, as `trace` calls it -> (calls in a step, the name of one).
        trace: the name of the trace, "" where none was given.
        card, capability: of the trace.
        world: ranks of the traced run, None where the trace does not say.
        log: of this engine, None where none was given. Where there is a trace too, both are of one run.
    """

    kernels: Mapping[str, Mapping[str, tuple[int, str]]] = {}
    trace: str = ""
    card: str = ""
    capability: tuple[int, int] | None = None
    world: int | None = None
    log: EngineLog | None = None


def last_rungs(
    scene: Scene, engine: str, declaration: Declaration, route: Route, seen: Seen, against: Step | None = None
) -> tuple[Step, ...]:
    """The three rungs: a trial where one is made, else what was seen, else not known and why.

    Args:
        against: the first rung below that says no, None where none does.
    """
    why = _why_not(scene)
    tried: tuple[Step, ...] = ()
    if not why and against is not None and against.rung in _LEADS_ELSEWHERE:
        why = f"not tried, because it is not {against.rung}"
    elif not why:
        trial, why = trial_of(engine, declaration, route)
        if trial is not None and scene.trying is None:
            why = f"not tried: {scene.not_tried}"
        elif trial is not None:
            tried = trial.steps(scene, route)
    if tried and tried[0].answer is not Answer.NOT_KNOWN:
        return tried
    ran = _ran(_logged(scene, declaration, route, seen), _traced(scene, declaration, route, seen))
    if tried:
        return (ran if ran is not None and ran.answer is Answer.PASS else tried[0], *tried[1:])
    hint = f"--try, which makes a small call on this GPU; or {_HINT}" if "--try" in why else _HINT
    return (ran or unknown(Rung.EXECUTED, why, hint=hint), *(unknown(rung, why) for rung in _LAST[1:]))


_HINT = "--log with the engine's own log, or --trace with a profile of a few decode steps"


def trial_of(engine: str, declaration: Declaration, route: Route) -> tuple[KernelTrial | None, str]:
    """What calls the kernel that this backend leads to; else None and the reason.

    The trial of the backend's own name comes first, then those of other names that may lead to the same kernel.
    """
    area = f"{engine}.{declaration.area}."
    names = sorted((name for name in TRIALS.names() if name.startswith(area)), key=f"{area}{declaration.name}".__ne__)
    for name in names:
        trial: KernelTrial = TRIALS.load(name)
        if trial.fits(route):
            return trial, ""
    end = f", which leads to {route.destination}" if route.destination else ""
    return None, f"no small call is known for this backend{end}"


def has_card(scene: Scene) -> bool:
    """Whether the machine has the very card that is judged for: its name, and its architecture where both are told."""
    cards = scene.installation.cards.best if scene.installation.cards else ()
    wanted = scene.target.compute_capability
    return any(
        _catalogued(card) == scene.target.gpu and (card.major, card.minor) in (wanted, (None, None)) for card in cards
    )


def _catalogued(card: Card) -> str:
    """The catalogue's name of a card; "" for one it does not have."""
    try:
        return get_gpu(card.name or "").name
    except SublightError:
        return ""


def _why_not(scene: Scene) -> str:
    """Why nothing can be called on the card that is judged for, "" when it can."""
    cards = scene.installation.cards
    if cards is None:
        return NO_GPU
    if not cards.best:
        return f"{NO_GPU} ({cards.smi_error or cards.driver_error})" if cards.smi_error else NO_GPU
    if not has_card(scene):
        sm = (cards.best[0].major, cards.best[0].minor) == scene.target.compute_capability
        return (
            f"{NO_GPU}: the machine has {cards.best[0].name}, which is no {scene.target.gpu if sm else scene.target.sm}"
        )
    return ""


def _ran(logged: Step | None, traced: Step | None) -> Step | None:
    """What a log and a trace prove together: the log comes first, and what both prove is proved by both."""
    if logged is None or traced is None:
        return logged or traced
    if logged.answer is Answer.NOT_KNOWN:
        return traced
    proofs = traced.proofs if traced.answer is logged.answer else ()
    return msgspec.structs.replace(logged, proofs=(*logged.proofs, *proofs))


def _logged(scene: Scene, declaration: Declaration, route: Route, seen: Seen) -> Step | None:
    """What a log of this engine proves, where it is of the run that is asked about."""
    if seen.log is None:
        return None
    leads = route.destination if route.answer is Answer.PASS else ""
    step = executed_in(seen.log, declaration.area, declaration.name, leads)
    if step is None or step.answer is Answer.NOT_KNOWN:
        return step
    origin = of_log(seen.log, scene.target, _version(scene))
    if origin.differs:
        return _elsewhere("the log", step.why, origin, step.proofs)
    return msgspec.structs.replace(step, why=step.why + origin.caveat)


def _version(scene: Scene) -> str:
    return scene.distribution.version if scene.distribution else ""


def _elsewhere(what: str, said: str, origin: Origin, proofs: tuple[Proof, ...]) -> Step:
    why = f"{what} is of another run ({'; '.join(origin.differs)}): {said}"
    return unknown(Rung.EXECUTED, why, *proofs, hint=f"{_HINT}, of a run as it is asked about")


def _traced(scene: Scene, declaration: Declaration, route: Route, seen: Seen) -> Step | None:
    """A kernel of this backend's label among those of its area."""
    area = declaration.area
    if route.answer is not Answer.PASS:
        return None  # what ran then may be another backend's kernel
    if seen.log is not None and names_backend(seen.log, area):
        named = executed_in(seen.log, area, declaration.name, route.destination)
        if named is None or named.answer is not Answer.PASS:
            return None  # the log of the traced run names another
    kernels = seen.kernels.get(area, {})
    label = next((label for label in labels_of(declaration.name, route.destination, area) if label in kernels), "")
    if not label:
        return None
    calls, kernel = kernels[label]
    if not is_own(declaration.name, label, kernel):
        return None
    proof = Proof("trace", seen.trace, f"{counted(calls, 'call')} in a step: {kernel}")
    said = f"kernels of {label} ran for {_RAN_FOR.get(area, area)}"
    asked = (asked_moe_backend(seen.log)[0] or "auto") if seen.log is not None and area == "moe" else ""
    if asked and asked != declaration.name:
        why = f"{said} in a run that asked for {asked}; other names may lead to other kernels of that kind"
        return unknown(Rung.EXECUTED, why, proof, hint=f"{_HINT}, of a run that asks for {declaration.name}")
    origin = of_trace(seen.card, seen.capability, seen.world, scene.target)
    if seen.log is not None:
        logged = of_log(seen.log, scene.target, _version(scene))
        differs = tuple(dict.fromkeys((*origin.differs, *logged.differs)))
        untold = tuple(thing for thing in logged.untold if thing != "card" or thing in origin.untold)
        origin = Origin(differs=differs, untold=untold)
    elif seen.trace:
        origin = Origin(differs=origin.differs, untold=(*origin.untold, "which backend was asked for"))
    if origin.differs:
        return _elsewhere("the trace", said, origin, (proof,))
    lacking = [thing for thing in origin.untold if thing in _HANGS_ON] if declaration.name == "auto" else []
    if lacking:
        why = f"{said}, but what auto leads to hangs on more, of which nothing is said: {', '.join(lacking)}"
        return unknown(Rung.EXECUTED, why, proof, hint=f"{_HINT}, both of one run")
    return passed(Rung.EXECUTED, said + origin.caveat, proof)


_RAN_FOR = {"moe": "the experts", "fp4-gemm": "products outside the experts", "all-reduce": "all-reduces"}
# What the engine chooses by when it is asked for nothing, as `origin` calls it.
_HANGS_ON = frozenset({"card", "engine version", "architecture", "model", "which backend was asked for"})
