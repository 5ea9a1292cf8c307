"""Why a backend is not usable, what is not known of it, and what its gates claim beside the code that is there."""

import re
from collections.abc import Iterator, Mapping

from sublight.audit.ladder import Answer, Ladder, Rung, Step
from sublight.audit.record import Capability, CodeSet, EngineAudit
from sublight.audit.target import Target
from sublight.report.blocks import Block, Cell, Column, Heading, Line, Listing, Paragraph, Table, Tone
from sublight.units import counted

SYMBOLS = {Answer.PASS: "✓", Answer.FAIL: "✗", Answer.NOT_KNOWN: "?"}
TONES: dict[Answer, Tone] = {Answer.PASS: "good", Answer.FAIL: "bad", Answer.NOT_KNOWN: "muted"}
ON_A_GPU = (Rung.EXECUTED, Rung.CORRECT, Rung.FAST)
AREAS = {"moe": "MoE", "fp4-gemm": "FP4 GEMM", "attention": "attention", "all-reduce": "all-reduce"}
_OWN_NAME = "(its name)"


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


def reasons(ladders: list[Ladder]) -> Iterator[Block]:
    """The verdict of each backend, and what is open about those without one; said once for all it is true of."""
    refused = [(ladder, ladder.verdict) for ladder in ladders if ladder.verdict is not None]
    unknown = [(ladder, step) for ladder in ladders for step in _open(ladder)]
    yield from _told("Why not", "plain", refused)
    yield from _told("What is not known", "muted", unknown)


def _told(title: str, tone: Tone, pairs: list[tuple[Ladder, Step]]) -> Iterator[Block]:
    told: dict[tuple[Rung, str, str], tuple[Step, list[str]]] = {}
    for ladder, step in pairs:
        alike = re.sub(rf"(?<![\w.])'?{re.escape(ladder.name)}'?(?!\w)", _OWN_NAME, step.why, flags=re.IGNORECASE)
        told.setdefault((step.rung, alike, step.hint), (step, []))[1].append(ladder.name)
    if told:
        yield Heading(title, 3)
        yield Listing(tuple(_reason(step, why, names, tone) for (_, why, _), (step, names) in told.items()))


def _open(ladder: Ladder) -> list[Step]:
    """Rungs below those on a GPU that are not known, of a backend that nothing is said against."""
    if ladder.verdict is not None:
        return []
    return [step for step in ladder.steps if step.answer is Answer.NOT_KNOWN and step.rung not in ON_A_GPU]


def _reason(step: Step, why: str, names: list[str], tone: Tone) -> Cell:
    who = ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])} and {len(names) - 7} more"
    said = step.why if len(names) == 1 else why
    where = _places(step) if step.answer is Answer.FAIL else ""
    hint = f" Try: {step.hint}." if step.hint and not _repeats(step.hint, step.why) else ""
    rung = f"not {step.rung}" if step.answer is Answer.FAIL else step.rung.value
    return Cell(f"{who}: {rung}: {_cut(said)}{where}{hint}", tone)


def _repeats(hint: str, why: str) -> bool:
    """Whether what to try stands in the engine's own words already."""
    return " ".join(hint.split()).rstrip(".").lower() in " ".join(why.split()).lower()


def _places(step: Step) -> str:
    """Where it was read; of a path through the code its last branches and the call, lines of one file together."""
    proofs = step.proofs[-6:] if step.rung is Rung.REACHABLE else step.proofs[-1:]
    lines: dict[str, list[str]] = {}
    for proof in proofs:
        file, colon, line = proof.where.rpartition(":")
        lines.setdefault(file if colon else proof.where, []).extend([line] if colon else [])
    places = [f"{file}:{','.join(numbers)}" if numbers else file for file, numbers in lines.items()]
    return f" [{'; '.join(places)}]" if places and places[0] not in step.why else ""


def _cut(text: str, most: int = 300) -> str:
    """The page's tables have every text whole."""
    return text.rstrip(".") + "." if len(text) <= most else f"{text[:most].rstrip()} ..."


def sets(engine: EngineAudit, ladders: list[Ladder], target: Target | None) -> Iterator[Block]:
    """What gates claim beside what was shipped, for backends that have either; those alike share a line."""
    shown = {(ladder.area, ladder.name) for ladder in ladders}
    alike: dict[tuple[str, str, Cell], list[str]] = {}
    for code in engine.code:
        if (code.area, code.name) in shown and (code.capability.claimed or _shipped(code.capability) != "none"):
            key = (_claimed(code.capability), _shipped(code.capability), _for_target(code.capability))
            alike.setdefault(key, []).append(code.name)
    if not alike or target is None:
        return
    columns = (
        Column("backends", least=16),
        Column("gates list", least=14),
        Column("shipped code objects", least=16),
        Column(f"for {target.sm}", least=12),
    )
    lines = tuple(
        Line((Cell(", ".join(names)), Cell(claimed), Cell(shipped), judged))
        for (claimed, shipped, judged), names in alike.items()
    )
    yield Heading("What gates claim, and what code is there", 3)
    yield Table(columns, lines, "A list in Python is a claim; code objects, and a compiler that knows the card, count.")


def _claimed(capability: Capability) -> str:
    if capability.claimed:
        return ", ".join(sorted(capability.claimed, key=lambda text: [int(part) for part in text.split(".")]))
    return "no list" if capability.gates else "no gate"


def _shipped(capability: Capability) -> str:
    said = []
    for found in capability.code:
        targets = [target.replace("compute_", "PTX ") for target in found.coverage.targets]
        if targets:
            said.append(f"{found.package}: {', '.join(targets)}")
    return "; ".join(said) or "none"


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
        yield Paragraph(f"{named}: not known, {why}", "muted")
