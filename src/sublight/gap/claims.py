"""What people say of a step, held against its floor: a claimed floor, and parts measured or simulated apart."""

import re
from collections.abc import Sequence

import msgspec

from sublight.errors import UnknownNameError, UsageError
from sublight.facts.gpu import get_gpu
from sublight.facts.published import PublishedKernels
from sublight.limits.decode import DecodeLimit, RowLimit
from sublight.rows import ROWS, Group
from sublight.units import parse_time_s


class ClaimedFloor(msgspec.Struct, frozen=True, kw_only=True):
    """A floor that somebody states, and what it cannot hold.

    Attributes:
        text: as it was given.
        claimed_s: in seconds.
        naive_s: the bytes of one token's weights over all bandwidth.
        room_s: what the claim leaves beside the naive number; negative when it is below even that.
        left_out: ids of the terms of the floor that the room has no place for.
        left_out_s: their sum.
        share_of_measured: claim over measurement.
    """

    text: str
    claimed_s: float
    naive_s: float
    room_s: float
    left_out: tuple[str, ...]
    left_out_s: float
    share_of_measured: float


class ClaimedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the step whose time somebody states from elsewhere, and what subtracting it leaves.

    Attributes:
        text: as it was given.
        claimed_s: in seconds.
        rows: ids of the rows and collectives it names.
        floor_s: their floor.
        published_s: the same rows as others measured their kernels, where that is known.
        published_rows: how many of the rows that covers.
        rest_s: the measured step less the claim.
        rest_floor_s: floor of every other row.
        rest_published_s: published kernel times of every other row.
        rest_fp4_floor_s, rest_fp4_published_s: of those, the rows stored in four bits.
    """

    text: str
    claimed_s: float
    rows: tuple[str, ...]
    floor_s: float
    published_s: float | None
    published_rows: int
    rest_s: float
    rest_floor_s: float
    rest_published_s: float | None
    rest_fp4_floor_s: float
    rest_fp4_published_s: float | None


_GROUPS = {g.value.lower().replace(" ", "-").replace("_", "-"): g for g in Group}
_WORDS: dict[str, tuple[Group, ...]] = {
    "allreduce": (Group.COLLECTIVES,),
    "all-reduce": (Group.COLLECTIVES,),
    "comm": (Group.COLLECTIVES,),
    "attention": (Group.ATTENTION_PROJECTIONS, Group.ATTENTION_CORE, Group.INDEXER, Group.LINEAR_ATTENTION),
    "experts": (Group.ROUTED_EXPERTS, Group.SHARED_EXPERTS),
    "moe": (Group.ROUTER, Group.ROUTED_EXPERTS, Group.SHARED_EXPERTS),
}
_FORMATS = {
    "bf16": ("BF16", "FP16"),
    "fp8": ("FP8",),
    "fp4": ("NVFP4", "MXFP4"),
    "nvfp4": ("NVFP4",),
    "int4": ("INT4",),
}


_RATE = re.compile(
    r"\s*([0-9]+(?:[_,][0-9]{3})*(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|[0-9.]+)\s*tok(?:en)?s?\s*/\s*s\s*", re.IGNORECASE
)


def rate_or_time_s(text: str, what: str, per_step: float = 1.0) -> float:
    """Seconds of a step from a time ("97ms") or from a rate of one request ("10.36 tok/s").

    Args:
        per_step: tokens that one request gains a step; 1 without speculation.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        return _plausible(parse_time_s(text, what), text, what)
    try:
        rate = float(match[1].replace("_", "").replace(",", ""))
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise UsageError(what, f"{text!r} is not a rate above zero", "10.36 tok/s or 97ms")
    return _plausible(per_step / rate, text, what)


_SHORTEST_S, _LONGEST_S = 1e-6, 3600.0


def _plausible(seconds: float, text: str, what: str) -> float:
    """The time, if a decode step could be meant: a wrong unit is told as one, and not compared."""
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        raise UsageError(
            what,
            f"{text!r} is {seconds:.3g} s a step: no decode step takes less than 1 us or more than 1 hour",
            "the time of one step, such as 97ms",
        )
    return seconds


def claimed_floor(limit: DecodeLimit, measured_s: float, text: str) -> ClaimedFloor:
    """Hold a claimed floor against the terms of the computed one."""
    claimed_s = rate_or_time_s(text, "--claimed-floor", _tokens_per_step(limit))
    room = claimed_s - limit.totals.naive_s
    others = [t for t in limit.terms if t.id != "naive"]
    if sum(t.seconds for t in others) <= room:
        others = []
    return ClaimedFloor(
        text=text,
        claimed_s=claimed_s,
        naive_s=limit.totals.naive_s,
        room_s=room,
        left_out=tuple(t.id for t in others),
        left_out_s=sum(t.seconds for t in others),
        share_of_measured=claimed_s / measured_s,
    )


def claimed_part(limit: DecodeLimit, measured_s: float, text: str, published: PublishedKernels | None) -> ClaimedPart:
    """Hold "names=time" against the rows it names. Raises UsageError or UnknownNameError."""
    names, equals, time_text = text.partition("=")
    if not equals:
        raise UsageError(f"--claimed-part {text!r}", "there is no '='", "--claimed-part 'bf16+allreduce=8.9ms'")
    claimed_s = parse_time_s(time_text, f"--claimed-part {text!r}")
    if claimed_s > measured_s:
        raise UsageError(
            f"--claimed-part {text!r}", "the part is longer than the whole step", "a part of the measured step"
        )
    chosen: set[str] = set()
    for name in names.split("+"):
        chosen |= _select(limit, name.strip(), text)
    known = published_by_row(limit, published)
    everything = [r.id for r in limit.rows] + [c.id for c in limit.collectives]
    rest = [id_ for id_ in everything if id_ not in chosen]
    fp4 = [r.id for r in limit.rows if r.id not in chosen and _stored_in(r, _FORMATS["fp4"])]
    return ClaimedPart(
        text=text,
        claimed_s=claimed_s,
        rows=tuple(id_ for id_ in ROWS if id_ in chosen),
        floor_s=_floor(limit, chosen),
        published_s=_sum(known, chosen),
        published_rows=sum(id_ in known for id_ in chosen),
        rest_s=measured_s - claimed_s,
        rest_floor_s=_floor(limit, rest),
        rest_published_s=_sum(known, rest),
        rest_fp4_floor_s=_floor(limit, fp4),
        rest_fp4_published_s=_sum(known, fp4),
    )


def claimed_parts(
    limit: DecodeLimit, measured_s: float, texts: Sequence[str], published: PublishedKernels | None
) -> tuple[ClaimedPart, ...]:
    """Each claim held against its rows. Raises UsageError where two are of the very same rows."""
    parts = [claimed_part(limit, measured_s, text, published) for text in texts]
    for text, part in zip(texts, parts, strict=True):
        first = next(p for p in parts if p.rows == part.rows)
        if first is not part:
            raise UsageError(
                f"--claimed-part {text!r}",
                f"it names the rows of {first.text!r} again",
                "each part once, with one time",
            )
    return tuple(parts)


def published_by_row(limit: DecodeLimit, published: PublishedKernels | None) -> dict[str, float]:
    """Seconds a step of each row whose kernel was measured elsewhere; one time for several rows is split by bytes."""
    if published is None:
        return {}
    rows = {r.id: r for r in limit.rows if r.stage == "main"}
    # Messages were timed over what usually joins these cards.
    usual = limit.gpu.interconnect == get_gpu(published.gpu).interconnect
    messages = {c.id: c for c in limit.collectives if usual}
    found: dict[str, float] = {}
    for kernel in published.kernel:
        here = [id_ for id_ in kernel.rows if id_ in rows or id_ in messages]
        comparable = [id_ for id_ in here if id_ in messages or _all_stored_in(rows[id_], kernel.formats)]
        if kernel.each:
            for id_ in comparable:
                calls = messages[id_].calls if id_ in messages else rows[id_].cost.calls
                found[id_] = calls * kernel.us * 1e-6
            continue
        if not here or comparable != here:
            continue
        whole = sum(rows[id_].memory_s for id_ in here)
        for id_ in here:
            found[id_] = rows[id_].cost.calls * kernel.us * 1e-6 * rows[id_].memory_s / whole
    return found


def _tokens_per_step(limit: DecodeLimit) -> float:
    speculation = limit.workload.speculation
    return (speculation.tokens_per_step or 1.0) if speculation else 1.0


def _select(limit: DecodeLimit, name: str, text: str) -> set[str]:
    """Ids of the rows that one word of a claim names; at least one."""
    word = name.lower()
    present = {r.id for r in limit.rows} | {c.id for c in limit.collectives}
    groups = _WORDS.get(word) or ((_GROUPS[word],) if word in _GROUPS else ())
    if word in _FORMATS:
        chosen = {r.id for r in limit.rows if _stored_in(r, _FORMATS[word])}
    elif groups:
        chosen = {id_ for id_ in present if ROWS[id_].group in groups}
    elif word in ROWS:
        chosen = {word} & present
    else:
        raise UnknownNameError("part of a step", name, [*_FORMATS, *_WORDS, *_GROUPS, *sorted(present)])
    if not chosen:
        stored = [r.formats[0] for r in limit.rows if r.formats]
        raise UsageError(
            f"--claimed-part {text!r}",
            f"no row of this step is {name!r}: {limit.model.name} is stored in {', '.join(dict.fromkeys(stored))}",
            f"a format it has, or one of {', '.join(id_ for id_ in ROWS if id_ in present)}",
        )
    return chosen


def _stored_in(row: RowLimit, titles: tuple[str, ...]) -> bool:
    """Whether most of the row's bytes are in one of these formats ("FP8 block" is FP8)."""
    return bool(row.formats) and row.formats[0].startswith(titles)


def _all_stored_in(row: RowLimit, titles: tuple[str, ...]) -> bool:
    """Whether a kernel timed in one of these formats did the row's work: all of its weights have to be in them."""
    return bool(row.formats) and all(stored.startswith(titles) for stored in row.formats)


def _floor(limit: DecodeLimit, ids: set[str] | list[str]) -> float:
    rows = sum(r.time_s for r in limit.rows if r.id in ids)
    return rows + sum(c.calls * (c.best_s.value or 0.0) for c in limit.collectives if c.id in ids)


def _sum(known: dict[str, float], ids: set[str] | list[str]) -> float | None:
    found = [known[id_] for id_ in ids if id_ in known]
    return sum(found) if found else None
