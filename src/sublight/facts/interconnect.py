"""Interconnect: what joins several cards, and how long a collective over it takes according to published timings.

At decode sizes a collective is latency, not bytes: an all-reduce of 12 KiB on 8 cards moves its bytes in a microsecond
and takes 4 to 27. Latency can not be derived from a data sheet, so it is taken from a timing that somebody published
for this link and this number of cards, or it is not known. Only the bytes beyond a published payload are computed.

Bytes that reach one card, with n cards and a payload of P (both are lower bounds on its time over the link):

    all-reduce, one-shot          (n - 1) P        every card reads all the others
    all-reduce, two-shot or ring  2 (n - 1) / n P  reduce-scatter, then all-gather
    all-gather, reduce-scatter    (n - 1) P        P is what one card gives, or keeps
    send                          P                one card to the next

Time at a payload: on a straight line between the published payloads around it; before the first, the first; past the
last, the last plus the bytes beyond it at the rate of the link. Never below all its bytes at the rate of the link, and
never below the time published for a smaller payload, so that it does not fall when the payload grows.
"""

from typing import Literal, NamedTuple

import msgspec

from sublight.errors import UnknownNameError, UsageError
from sublight.facts.catalogue.interconnects import Interconnect, Timing, catalogue_link, link_names
from sublight.facts.gpu import Gpu
from sublight.records import Evidence, Figure, not_known
from sublight.units import show_bytes, show_count, show_rate, show_time

__all__ = [
    "OPERATIONS",
    "CollectiveTime",
    "Interconnect",
    "Timing",
    "collective_time",
    "interconnect_for",
    "interconnect_names",
    "moved_bytes",
]

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "send")
Choice = Literal["best", "nccl"]
_ALGORITHMS: dict[str, tuple[str, ...]] = {"best": ("one-shot", "two-shot", "nccl"), "nccl": ("nccl",)}
_SHOWN = {"one-shot": "one-shot", "two-shot": "two-shot", "nccl": "NCCL"}
_OVERRIDE = "--allreduce-us gives the time of one call"


class CollectiveTime(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one call and the rule it follows.

    Attributes:
        algorithm: the one the time is of; empty where it is not known.
        moved_bytes: that reach one card.
        rule: which published timing, and what was added to it.
    """

    seconds: Figure
    algorithm: str
    moved_bytes: float
    rule: str


class _Point(NamedTuple):
    payload_bytes: int
    seconds: float
    said: str


class _Estimate(NamedTuple):
    seconds: float
    evidence: Evidence
    source: str
    rule: str


def interconnect_names() -> list[str]:
    """Every name that `--interconnect` takes."""
    return list(link_names())


def interconnect_for(gpu: Gpu, name: str | None = None) -> Interconnect:
    """What joins several of this card: by exact name, or as is usual for it. Raises UnknownNameError."""
    wanted = gpu.interconnect if name is None else name.strip().lower()
    if wanted not in link_names():
        raise UnknownNameError("interconnect", wanted, link_names())
    return catalogue_link(wanted)


def moved_bytes(operation: str, algorithm: str, gpus: int, payload_bytes: float) -> float:
    """Bytes that reach one card; see the table above."""
    if operation == "send":
        return payload_bytes
    if operation == "all-reduce" and algorithm != "one-shot":
        return 2 * (gpus - 1) / gpus * payload_bytes
    return (gpus - 1) * payload_bytes


def collective_time(
    interconnect: Interconnect, operation: str, algorithm_choice: Choice, gpus: int, payload_bytes: int
) -> CollectiveTime:
    """Time of one call on `gpus` cards.

    Args:
        operation: one of `OPERATIONS`.
        algorithm_choice: "best" is the fastest of all published algorithms, NCCL among them.
        payload_bytes: of each card: what it gives to an all-reduce, all-gather or send, or keeps of a reduce-scatter.

    Raises:
        UnknownNameError: no such operation or choice.
        UsageError: a count below 1 or a payload below 0.
    """
    if operation not in OPERATIONS:
        raise UnknownNameError("collective operation", operation, OPERATIONS)
    if algorithm_choice not in _ALGORITHMS:
        raise UnknownNameError("choice of collectives", algorithm_choice, _ALGORITHMS)
    if gpus < 1 or payload_bytes < 0:
        raise UsageError(f"the time of an {operation}", f"{gpus} GPUs, {payload_bytes} B", "1 GPU or more, 0 B or more")
    if gpus == 1:
        rule = "one GPU sends nothing"
        return CollectiveTime(
            seconds=Figure(0.0, Evidence.COMPUTED, note=rule), algorithm="", moved_bytes=0.0, rule=rule
        )
    found: tuple[_Estimate, str] | None = None
    for algorithm in _ALGORITHMS[algorithm_choice]:
        estimate = _estimate(interconnect, operation, algorithm, gpus, payload_bytes)
        if estimate is not None and (found is None or estimate.seconds < found[0].seconds):
            found = estimate, algorithm
    if found is None:
        rule = _why_not(interconnect, operation, algorithm_choice, gpus)
        return CollectiveTime(seconds=not_known(rule), algorithm="", moved_bytes=0.0, rule=rule)
    estimate, algorithm = found
    return CollectiveTime(
        seconds=Figure(estimate.seconds, estimate.evidence, estimate.source, estimate.rule),
        algorithm=algorithm,
        moved_bytes=moved_bytes(operation, algorithm, gpus, payload_bytes),
        rule=estimate.rule,
    )


def _estimate(link: Interconnect, operation: str, algorithm: str, gpus: int, payload: int) -> _Estimate | None:
    """The time of one algorithm; None where nothing is published that it could rest on."""
    own = _published(link, operation, algorithm, gpus)
    if own:
        return _on_curve(own, link, payload)
    if operation == "all-reduce" or algorithm == "two-shot":  # the others have one phase, and nothing to take from two
        return None
    # A hand-off joins two cards, however many stages there are.
    lent = _published(link, "all-reduce", algorithm, 2 if operation == "send" else gpus)
    if not lent:
        return None
    if operation == "send":
        estimate = _on_curve(lent, link, payload)
        return estimate._replace(
            evidence=_weaker(estimate.evidence), rule=f"no send is published, so two cards exchange; {estimate.rule}"
        )
    return _borrowed(lent[0], link, operation, payload)


def _published(link: Interconnect, operation: str, algorithm: str, gpus: int) -> list[Timing]:
    """By payload. An eager timing holds the launch from the host, which a captured step does not pay: left out."""
    wanted = (operation, algorithm, gpus)
    timings = [t for t in link.timings if (t.operation, t.algorithm, t.gpus) == wanted and t.launch != "eager"]
    return sorted(timings, key=lambda timing: timing.payload_bytes)


def _on_curve(timings: list[Timing], link: Interconnect, payload: int) -> _Estimate:
    points = _points(timings)
    first, last = timings[0], points[-1]
    below = max((point for point in points if point.payload_bytes <= payload), default=points[0])
    above = min((point for point in points if point.payload_bytes >= payload), default=last)
    seconds, said, evidence = below.seconds, below.said, first.seconds.evidence
    if payload < below.payload_bytes:
        said += ", the smallest payload published"
    elif above.seconds == below.seconds:
        said = above.said
    elif above.payload_bytes > payload:
        part = (payload - below.payload_bytes) / (above.payload_bytes - below.payload_bytes)
        seconds += part * (above.seconds - below.seconds)
        said = f"on a line between {below.said} and {above.said}"
        evidence = _weaker(evidence)
    kind = f"{_SHOWN[first.algorithm]} {first.operation} on {first.gpus} GPUs"
    estimate = _Estimate(seconds, evidence, first.seconds.source, f"{kind}: {said}")
    total = moved_bytes(first.operation, first.algorithm, first.gpus, payload)
    at_last = moved_bytes(first.operation, first.algorithm, first.gpus, last.payload_bytes)
    return _over_link(estimate, link, max(0.0, total - at_last), total)


def _points(timings: list[Timing]) -> list[_Point]:
    """The published points, none below one for a smaller payload, the last carried on as far as it holds."""
    points: list[_Point] = []
    for timing in timings:
        seconds, payload = timing.seconds.known, timing.payload_bytes
        said = f"{show_time(seconds)} published for {show_count(payload)} B"
        if points and points[-1].seconds > seconds:
            seconds, said = points[-1].seconds, points[-1].said
        points.append(_Point(payload, seconds, said))
        if timing.holds_to_bytes > payload:
            said += f", kept up to {show_count(timing.holds_to_bytes)} B"
            points.append(_Point(timing.holds_to_bytes, seconds, said))
    return points


def _borrowed(lent: Timing, link: Interconnect, operation: str, payload: int) -> _Estimate:
    """The latency of the same algorithm's all-reduce, at its smallest payload, and bytes at the rate of the link."""
    seconds = lent.seconds.known
    said = f"{show_time(seconds)} published for {show_count(lent.payload_bytes)} B"
    rule = (
        f"no {_SHOWN[lent.algorithm]} {operation} on {lent.gpus} GPUs is published; latency of its all-reduce: {said}"
    )
    total = moved_bytes(operation, lent.algorithm, lent.gpus, payload)
    paid = moved_bytes("all-reduce", lent.algorithm, lent.gpus, lent.holds_to_bytes)
    estimate = _Estimate(seconds, _weaker(lent.seconds.evidence), lent.seconds.source, rule)
    return _over_link(estimate, link, max(0.0, total - paid), total)


def _over_link(estimate: _Estimate, link: Interconnect, extra_bytes: float, total_bytes: float) -> _Estimate:
    """With the bytes beyond the published payload at the rate of the link, and not below all bytes at that rate."""
    rate = link.link_bytes_per_s.known
    if extra_bytes:
        more = f"{show_bytes(extra_bytes)} more at {show_rate(rate)} ({show_time(extra_bytes / rate)})"
        estimate = estimate._replace(
            seconds=estimate.seconds + extra_bytes / rate,
            evidence=_weaker(estimate.evidence),
            rule=f"{estimate.rule}, plus {more}",
        )
    if estimate.seconds < total_bytes / rate:
        rule = f"{estimate.rule}; raised to what {show_bytes(total_bytes)} take at {show_rate(rate)}"
        estimate = estimate._replace(seconds=total_bytes / rate, evidence=_weaker(estimate.evidence), rule=rule)
    return estimate


def _weaker(evidence: Evidence) -> Evidence:
    """Of arithmetic on such a figure: computed, unless the figure itself was in doubt."""
    return Evidence.UNCERTAIN if evidence is Evidence.UNCERTAIN else Evidence.COMPUTED


def _why_not(link: Interconnect, operation: str, choice: Choice, gpus: int) -> str:
    if link.link_bytes_per_s.value is None:
        return f"{link.title}: {link.note}; {_OVERRIDE}"
    counts = sorted({t.gpus for t in link.timings if t.algorithm in _ALGORITHMS[choice] and t.launch != "eager"})
    known = f"there are some on {', '.join(map(str, counts))}" if counts else "there is none on any number of them"
    whose = "NCCL timing" if choice == "nccl" else "timing"
    cards = "2 GPUs (for a send)" if operation == "send" else f"{gpus} GPUs"
    return f"no {whose} on {cards} over {link.name} is published, {known}; {_OVERRIDE}"
