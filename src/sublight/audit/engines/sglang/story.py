"""Stories: what was walked, told as an answer with its lines, its needs, and the conditions on the card it met."""

import re
import sys
from collections.abc import Iterable

import msgspec

from sublight.audit.engines.base import Gate, Need, Route
from sublight.audit.engines.sglang import kernels
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.evaluate import Outcome
from sublight.audit.source.events import Event

_CARD = re.compile(
    r"is_sm\d+|sm\d+_supported|blackwell|hopper|capability|device_sm|is_ampere|\bmajor\b|sm_version|compute_cap|"
    r"cuda_12|is_cuda\b",
    re.IGNORECASE,
)
# Of those, a word that asks for the vendor only, or where a tensor lies.
_VENDOR = re.compile(r"is_cuda\b", re.IGNORECASE)
_ADVICE = re.compile(r"(?:[Uu]se|[Ss]et|[Tt]ry|[Rr]emove|[Pp]ass|requires?)\s+[^.]*?(--?[\w-]+(?:[ =][\w'-]+)?)")
PROOFS_AT_MOST = 12
REFUSED = "refused"


def proof(event: Event, text: str = "") -> Proof:
    shown = text or event.text
    if event.kind == "branch":
        shown = f"{event.text} is {event.outcome}" if event.outcome is not None else f"{event.text} (not known)"
    return Proof("source", event.where, shown)


def gates(events: Iterable[Event]) -> tuple[Gate, ...]:
    """Conditions on the card that the way met. One that refuses is a failure; one that was passed is a pass."""
    found: dict[str, Gate] = {}
    events = list(events)
    for at, event in enumerate(events):
        if event.kind not in ("branch", "assert") or not _CARD.search(event.text):
            continue
        if event.outcome is None and not _CARD.search(_VENDOR.sub("", event.text)):
            continue  # every card of NVIDIA's has the same answer
        refused = event.outcome is True and _raises_next(events, at)
        if event.kind == "assert":
            refused = event.outcome is False
        elif not refused and not event.text.startswith("not "):
            continue  # it only chooses a way
        found.setdefault(event.where, _gate(event, refused))
    return tuple(found.values())


def _gate(event: Event, refused: bool) -> Gate:
    """What was met under a condition that could not be decided may not be met at all: it refuses nobody for certain."""
    if refused and not event.certain:
        return Gate(Answer.NOT_KNOWN, f"{event.text}, on some ways only", proof(event))
    answer = Answer.NOT_KNOWN if event.outcome is None else Answer.FAIL if refused else Answer.PASS
    return Gate(answer, event.text, proof(event))


def _raises_next(events: list[Event], at: int) -> bool:
    return at + 1 < len(events) and events[at + 1].kind == "raise"


def needs(events: Iterable[Event], roots: frozenset[str]) -> tuple[Need, ...]:
    """What the way imports from these packages."""
    found: dict[str, Need] = {}
    for event in events:
        if event.kind != "import" or event.name.partition(".")[0] not in roots:
            continue
        only_if = " and ".join(condition.text for condition in event.conditions)
        found.setdefault(
            event.name, Need(event.name, event.where, event.how, event.on_failure or "ImportError", only_if)
        )
    return tuple(found.values())


def called(found: tuple[Need, ...], working: Iterable[Event]) -> tuple[Need, ...]:
    """Needs of which those are marked that the kernels themselves are: a guard around their import helps nobody then.

    Only where every kernel that may run comes from one package; else the engine may do without each of them.
    """
    names = {event.name for event in working if kernels.is_foreign(event)}
    if len({name.partition(".")[0] for name in names}) != 1:
        return found
    return tuple(
        msgspec.structs.replace(need, how=f"{need.how}, and called") if need.symbol in names else need for need in found
    )


def for_processors(working: Iterable[Event]) -> tuple[Gate, ...]:
    """A refusal where all that could compute is an operator that its library names as one for CPUs."""
    events = list(working)
    if not events or not all(event.name.endswith("_cpu") for event in events):
        return ()
    return (Gate(Answer.FAIL, f"{events[0].name} is an operator for CPUs", proof(events[0])),)


def used_packages(events: Iterable[Event]) -> frozenset[str]:
    """Packages outside whose symbols the way calls."""
    names = {kernels.root(event) for event in events if event.kind == "call" and kernels.is_foreign(event)}
    return frozenset(name for name in names if name not in sys.stdlib_module_names)


def refused(outcome: Outcome, stage: str, before: Iterable[Event] = ()) -> Route:
    """The engine says no: where, and in its own words."""
    at = outcome.refused_at
    failure = outcome.refusal
    said = failure.message if failure is not None else ""
    kind = failure.kind.rpartition(".")[2] if failure is not None else ""
    if at is None:  # an operation of Python's own failed; what was read was not enough
        return Route(
            answer=Answer.NOT_KNOWN, why=f"the walk ends in {kind} ({said}) when {stage}, which the engine may not"
        )
    events = [*before, *outcome.events]
    if kind == "AttributeError" and " has no attribute " in said:
        return _broken(outcome, at, said, stage, events)
    proofs = [proof(event) for event in cause(list(outcome.events), at)] + [proof(at)]
    why = f"{REFUSED} when {stage}: {shortened(said) or kind}"
    return Route(
        answer=Answer.FAIL,
        why=why,
        proofs=tuple(proofs),
        gates=gates(events),
        hint=advice(said) or "another backend, layout or checkpoint format: the line above says what it accepts",
    )


def _broken(outcome: Outcome, at: Event, said: str, stage: str, events: list[Event]) -> Route:
    """The engine does not say no, it fails: what it uses was left None for this name."""
    if not at.certain or at.function.partition(".")[0] != "sglang":
        return Route(answer=Answer.NOT_KNOWN, why=f"the walk ends when {stage}: {said}, which the engine may not")
    return Route(
        answer=Answer.FAIL,
        why=f"accepted, but fails when {stage}: {said}",
        proofs=(*(proof(event) for event in cause(list(outcome.events), at)), proof(at, at.module.line(at.line))),
        gates=gates(events),
        hint="another name: what this one needs is never made here",
    )


def of_the_card(text: str) -> bool:
    """Whether a condition asks for the card."""
    return _CARD.search(_VENDOR.sub("", text)) is not None


def cause(events: list[Event], at: Event) -> list[Event]:
    """The condition right before a refusal, in the same function and on the same way through it."""
    place = events.index(at)
    taken = {(each.where, each.text) for each in at.conditions}
    for event in reversed(events[:place]):
        near = event.kind in ("branch", "assert") and event.function == at.function
        if near and all((each.where, each.text) in taken for each in event.conditions):
            return [event]
    return []


def shortened(text: str, at_most: int = 240) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= at_most else flat[: at_most - 3] + "..."


def advice(message: str) -> str:
    """What the engine's own message says to do instead, "" when it says nothing of the kind."""
    for sentence in re.split(r"(?<=[.!])\s+", " ".join(message.split())):
        if _ADVICE.search(sentence) or re.match(r"(Please )?[Uu]se ", sentence):
            return sentence.rstrip(".")
    return ""
