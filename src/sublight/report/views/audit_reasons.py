"""Why a backend is not usable, what is not known of it, and what its gates claim beside the code that is there."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from sublight.audit.ladder import Answer, Ladder, Rung, Step
from sublight.audit.record import BackendCode, Capability, CodeSet, EngineAudit
from sublight.audit.target import NO_EXPERTS, Target
from sublight.report.blocks import Block, Cell, Column, Heading, Line, Listing, Paragraph, Table, Tone
from sublight.report.views.audit_shared import AREAS, ON_A_GPU, Shared, unknown_steps
from sublight.units import counted

SYMBOLS = {Answer.PASS: "✓", Answer.FAIL: "✗", Answer.NOT_KNOWN: "?"}
TONES: dict[Answer, Tone] = {Answer.PASS: "good", Answer.FAIL: "bad", Answer.NOT_KNOWN: "muted"}
_OWN_NAME, _OWN_CLASS = "(its name)", "(its class)"


def tried(ladders: list[Ladder]) -> Iterator[Block]:
    """What came of the backends that were called on this GPU; those that lead to one kernel share it."""
    told: dict[tuple[tuple[Answer, str], ...], list[str]] = {}
    for ladder in ladders:
        last = [step for step in ladder.steps if step.rung in ON_A_GPU]
        if any(proof.kind == "trial" for step in last for proof in step.proofs):
            told.setdefault(tuple((step.answer, f"{step.rung}: {step.why}") for step in last), []).append(ladder.name)
    if not told:
        return
    yield Heading("Tried on this GPU", 3)
    for said, names in told.items():
        yield Paragraph(", ".join(names), "strong")
        yield Listing(tuple(Cell(f"{SYMBOLS[answer]} {text}", TONES[answer]) for answer, text in said))


def reasons(
    ladders: list[Ladder], without: Mapping[str, tuple[str, ...]] | None = None, elsewhere: Shared | None = None
) -> Iterator[Block]:
    """The verdict of each backend, and what is open about those without one; said once for all it is true of.

    Args:
        without: backend -> capabilities that its gates list, where the card that is judged for is not among them.
        elsewhere: what is told once for all areas.
    """
    refused = [(ladder, ladder.verdict) for ladder in ladders if ladder.verdict is not None]
    told = elsewhere or Shared()
    unknown = [(ladder, left) for ladder in ladders for step in unknown_steps(ladder) if (left := told.rest(step))]
    slow = [(ladder, step) for ladder in ladders if ladder.slow and ladder.verdict is None for step in _reached(ladder)]
    yield from _told("Why not", "plain", refused, without or {})
    yield from _told("What is slow", "warn", slow, {})
    yield from _told("What is not known", "muted", unknown, {})


def lists_without(engine: EngineAudit, area: str, target: Target | None) -> dict[str, tuple[str, ...]]:
    """Backends whose gates list capabilities, and not that of the card that is judged for."""
    if target is None:
        return {}
    own = "{}.{}".format(*target.compute_capability)
    claimed = {code.name: code.capability.claimed for code in engine.code if code.area == area}
    return {name: _in_order(listed) for name, listed in claimed.items() if listed and own not in listed}


class _Said(NamedTuple):
    """A sentence about a backend: with the backend's name left open, and with its class left open as well."""

    name: str
    step: Step
    named: str
    classed: str


def _told(
    title: str, tone: Tone, pairs: list[tuple[Ladder, Step]], without: Mapping[str, tuple[str, ...]]
) -> Iterator[Block]:
    told: _Told = {}
    for ladder, step in pairs:
        named = _own_name(ladder.name).sub(_OWN_NAME, step.why)
        classed = _own_class(ladder.destination).sub(_OWN_CLASS, named)
        cards = without.get(ladder.name, ()) if _ABOUT_A_CARD.search(step.why) else ()
        told.setdefault((step.rung, classed, step.hint, cards), []).append(_Said(ladder.name, step, named, classed))
    if not told:
        return
    told, tail = _without_tail(told)
    often = Counter(hint for _, _, hint, _ in told if hint).most_common(1)
    shared = often[0][0] if often and often[0][1] >= _OFTEN else ""
    yield Heading(title, 3)
    yield Listing(tuple(_reason(said, cards, shared, tone) for (*_, cards), said in told.items()))
    if shared:
        rungs = dict.fromkeys(rung.value for rung, _, hint, _ in told if hint == shared)
        yield Paragraph(f"Try for {' and '.join(rungs)}, where nothing else is named: {shared}.", tone)
    if tail:
        yield Paragraph(f"This is {tail}.", tone)


_Told = dict[tuple[Rung, str, str, tuple[str, ...]], list[_Said]]


def _without_tail(told: _Told) -> tuple[_Told, str]:
    """The sentences without words that many of them end in ("for a KV cache of such a type"), and these words."""
    ends = Counter(end for _, text, _, _ in told if (end := text.rpartition(", ")[2]).startswith("for "))
    tail, times = next(iter(ends.most_common(1)), ("", 0))
    if times < _OFTEN:
        return told, ""
    end = f", {tail}"
    shorter: _Told = {}
    for (rung, text, hint, cards), said in told.items():
        cut = [
            one._replace(
                step=msgspec.structs.replace(one.step, why=one.step.why.removesuffix(end)),
                named=one.named.removesuffix(end),
                classed=one.classed.removesuffix(end),
            )
            for one in said
        ]
        shorter.setdefault((rung, text.removesuffix(end), hint, cards), []).extend(cut)
    return shorter, tail


_OFTEN = 3  # lines that have one thing to try: it then stands below them, once
# An engine's own words that say of the card no more than that it is another one.
_ABOUT_A_CARD = re.compile(r"current device|compute capability not supported")


def _own_name(name: str) -> re.Pattern[str]:
    """A backend's name as sentences have it: in quotes, as a member of an enumeration, and in its plural."""
    return re.compile(rf"(?<![\w.])(?-i:[A-Z]\w*\.)?'?{re.escape(name)}s?'?(?!\w)", re.IGNORECASE)


def _own_class(destination: str) -> re.Pattern[str]:
    last = destination.rpartition(".")[2]
    return re.compile(rf"(?<![\w.])(?:\w+\.)*{re.escape(last)}(?!\w)") if last else _NOTHING


_NOTHING = re.compile("(?!)")


def _reached(ladder: Ladder) -> list[Step]:
    return [step for step in ladder.steps if step.rung is Rung.REACHABLE]


def _reason(told: list[_Said], cards: tuple[str, ...], shared: str, tone: Tone) -> Cell:
    first = told[0]
    step = first.step
    alike = len({said.named for said in told}) == 1
    text = step.why if len(told) == 1 else first.named if alike else first.classed
    listed = f" Gates list compute capability {', '.join(cards)}." if cards else ""
    where = _places([said.step for said in told]) if step.answer is Answer.FAIL else ""
    own = step.hint if step.hint != shared and not _repeats(step.hint, step.why) else ""
    hint = f" Try: {own}." if own else ""
    rung = f"not {step.rung}" if step.answer is Answer.FAIL else step.rung.value
    return Cell(f"{', '.join(said.name for said in told)}: {rung}: {_cut(text)}{listed}{where}{hint}", tone)


def _repeats(hint: str, why: str) -> bool:
    """Whether what to try stands in the engine's own words already."""
    return " ".join(hint.split()).rstrip(".").lower() in " ".join(why.split()).lower()


def _places(steps: list[Step]) -> str:
    """Where it was read; of a path through the code its last branches and the call, lines of one file together.

    Of several backends the places that all of them have.
    """
    step = steps[0]
    proofs = step.proofs[-6:] if step.rung is Rung.REACHABLE else step.proofs[-1:]
    shared = [{proof.where for proof in other.proofs} for other in steps[1:]]
    proofs = tuple(proof for proof in proofs if all(proof.where in places for places in shared))
    lines: dict[str, list[str]] = {}
    for proof in proofs:
        file, colon, line = proof.where.rpartition(":")
        lines.setdefault(file if colon else proof.where, []).extend([line] if colon else [])
    places = [f"{file}:{','.join(numbers)}" if numbers else file for file, numbers in lines.items()]
    return f" [{'; '.join(places)}]" if places and places[0] not in step.why else ""


def _cut(text: str, most: int = 300) -> str:
    """The page's tables have every text whole."""
    return text.rstrip(".") + "." if len(text) <= most else f"{text[:most].rstrip()} ..."


def sets(engine: EngineAudit, ladders: list[Ladder], target: Target | None, told: set[str]) -> Iterator[Block]:
    """What gates claim beside what was shipped, for backends that have either; those alike share a line.

    Args:
        told: packages whose targets an earlier area listed; those of this one are added.
    """
    shown = {(ladder.area, ladder.name) for ladder in ladders}
    codes = [code for code in engine.code if (code.area, code.name) in shown]
    once = _told_once(engine.code)
    alike: dict[tuple[str, str, Cell], list[str]] = {}
    for code in codes:
        found = code.capability
        if found.claimed or _shipped(found, once) != "none":
            key = (_claimed(found), _shipped(found, once), _for_target(found))
            alike.setdefault(key, []).append(code.name)
    if not alike or target is None:
        return
    columns = (
        Column("backends", least=16),
        Column("gates list", least=14),
        Column("shipped"),
        Column(f"for {target.sm}", least=12),
    )
    lines = tuple(
        Line((Cell(", ".join(names)), Cell(claimed), Cell(shipped), judged))
        for (claimed, shipped, judged), names in alike.items()
    )
    yield Heading("What gates claim, and what code is there", 3)
    claim = "A list in Python is a claim; code objects, and a compiler that knows the card, count."
    yield Table(columns, lines, claim)
    used = {found.package for code in codes for found in code.capability.code if found.coverage.targets}
    new = [package for package in once if package in used - told]
    if new:
        yield Listing(tuple(Cell(f"{package} ships {once[package]}", "muted") for package in new))
    told |= set(new)


def _told_once(codes: Iterable[BackendCode]) -> dict[str, str]:
    """Packages whose code is for the same targets wherever it is used -> those targets."""
    told: dict[str, set[str]] = {}
    for code in codes:
        for found in code.capability.code:
            if found.coverage.targets:
                told.setdefault(found.package, set()).add(_targets(found))
    return {package: min(targets) for package, targets in told.items() if len(targets) == 1}


def _claimed(capability: Capability) -> str:
    if capability.claimed:
        return ", ".join(_in_order(capability.claimed))
    return "no list" if capability.gates else "no gate"


def _in_order(capabilities: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(capabilities, key=lambda text: [int(part) for part in text.split(".")]))


def _shipped(capability: Capability, once: Mapping[str, str]) -> str:
    """Packages and the targets of their code; of a package in `once` they are told below."""
    said = [
        found.package if found.package in once else f"{found.package}: {_targets(found)}"
        for found in capability.code
        if found.coverage.targets
    ]
    return "; ".join(said) or "none"


def _targets(found: CodeSet) -> str:
    return ", ".join(target.replace("compute_", "PTX ") for target in found.coverage.targets)


def _for_target(capability: Capability) -> Cell:
    texts = dict.fromkeys(text for found in capability.code if (text := _one(found)))
    good = any(found.coverage.runs for found in capability.code)
    return Cell("; ".join(texts) or "no code found", "good" if good else "plain")


def _one(found: CodeSet) -> str:
    cover = found.coverage
    said = []
    if cover.units:
        said.append(
            f"{cover.runs:,} of {counted(cover.units, 'unit')} run{'s' * (cover.runs == 1)}"
            + (f", {cover.exact:,} exact" if cover.runs else "")
        )
    if found.build is not None:
        said.append(
            {Answer.PASS: "can be built", Answer.FAIL: "cannot be built"}.get(found.build.answer, "built on call")
        )
    return ", ".join(said)


def every_rung(engine: EngineAudit) -> Iterator[Block]:
    """Every rung of every backend with its proofs, one table an area: for pages."""
    for area in dict.fromkeys(ladder.area for ladder in engine.ladders):
        yield Heading(f"Every rung of {engine.name}'s {AREAS.get(area, area)} backends")
        lines = [line for ladder in engine.ladders if ladder.area == area for line in _rungs(ladder)]
        yield Table((Column("rung"), Column("what was found", least=20), Column("where", least=20)), tuple(lines))


def _rungs(ladder: Ladder) -> Iterator[Line]:
    yield Line((Cell(ladder.name, "strong"), Cell(ladder.flag), Cell(ladder.destination)), "group")
    for step in ladder.steps:
        said = step.why + (f" Try: {step.hint}." if step.hint and not _repeats(step.hint, step.why) else "")
        yield Line((Cell(f"{SYMBOLS[step.answer]} {step.rung}", TONES[step.answer]), Cell(said), Cell("")))
        for proof in step.proofs:
            yield Line((Cell(""), Cell(proof.text, "muted"), Cell(proof.where, "muted")))


def unread(not_read: Mapping[str, str]) -> Iterator[Block]:
    """What could not be read of an engine: backends of an area, or something else that was asked."""
    for what, why in not_read.items():
        named = f"{AREAS[what]} backends" if what in AREAS else what
        yield Paragraph(f"{named}: {why if why == NO_EXPERTS else f'not known, {why}'}", "muted")
