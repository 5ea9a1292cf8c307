"""The document of an audit: backends and rungs in one table, the reasons, the two sets of targets, what to try."""

import re
from collections.abc import Iterable, Iterator

from sublight.audit.engines.base import Gate
from sublight.audit.ladder import Answer, Ladder, Proof, Rung, Step
from sublight.audit.record import Audit, AuditFinding, Auto, Capability, CodeSet, EngineAudit, Flag, SymbolAnswer
from sublight.audit.target import Target
from sublight.report.blocks import (
    Block,
    Cell,
    Code,
    Column,
    Document,
    Facts,
    Heading,
    Headline,
    Line,
    Listing,
    Paragraph,
    Table,
    Tone,
)
from sublight.units import show_time

_SYMBOLS = {Answer.PASS: "✓", Answer.FAIL: "✗", Answer.NOT_KNOWN: "?"}
_TONES: dict[Answer, Tone] = {Answer.PASS: "good", Answer.FAIL: "bad", Answer.NOT_KNOWN: "muted"}
_SHORT = {
    Rung.DECLARED: "decl",
    Rung.REACHABLE: "reach",
    Rung.INSTALLED: "inst",
    Rung.IMPORTABLE: "imp",
    Rung.CAPABLE: "cap",
    Rung.EXECUTED: "exec",
    Rung.CORRECT: "corr",
    Rung.FAST: "fast",
}
_AREAS = {"moe": "MoE", "fp4-gemm": "FP4 GEMM", "attention": "attention", "all-reduce": "all-reduce"}
_LEVEL_TONES: dict[str, Tone] = {"error": "bad", "warn": "warn", "info": "plain"}
_ON_A_GPU = (Rung.EXECUTED, Rung.CORRECT, Rung.FAST)


def audit_document(audit: Audit) -> Document:
    """What works, why the rest does not, what was odd, and last the flags worth trying."""
    blocks: list[Block] = [Facts(tuple(_question(audit)))]
    if audit.engines:
        blocks.insert(0, Headline(_headline(audit)))
    for engine in audit.engines:
        blocks += _engine(engine, audit.target)
    blocks += _symbols(audit.symbols)
    blocks += _findings(audit.findings)
    if audit.engines:
        blocks += _flags(audit.flags)
    more = [block for engine in audit.engines for block in _everything(engine)]
    return Document(_title(audit), tuple(blocks), _footer(audit), tuple(more))


def _title(audit: Audit) -> str:
    names = ", ".join(f"{engine.name} {engine.version}".strip() for engine in audit.engines)
    if not names:
        names = ", ".join(answer.symbol for answer in audit.symbols)
    return f"Audit: {names}" + (f" on {audit.target.gpu}" if audit.target else "")


def _footer(audit: Audit) -> str:
    timings = audit.timings
    parts = [f"asked in {show_time(timings.asking_s)}", f"read in {show_time(timings.reading_s)}"]
    if timings.imported:
        parts.append(f"{timings.imported} symbols imported in {show_time(timings.importing_s)}")
    return f"Sublight: {', '.join(parts)}{'; nothing had changed' if timings.cached else ''}"


def _headline(audit: Audit) -> tuple[tuple[str, str, str], ...]:
    ladders = [ladder for engine in audit.engines for ladder in engine.ladders if not _only_inside(ladder)]
    failing = [ladder for ladder in ladders if ladder.verdict is not None]
    seen = [ladder for ladder in ladders if any(s.rung in _ON_A_GPU and s.answer is Answer.PASS for s in ladder.steps)]
    return (
        (
            "nothing against them",
            f"{len(ladders) - len(failing)} of {len(ladders)}",
            "backends that no rung says no to",
        ),
        ("seen on a GPU", str(len(seen)), "by a trial, a log or a trace"),
        ("not usable so", str(len(failing)), "the first rung that says no is the reason"),
    )


def _question(audit: Audit) -> Iterator[tuple[str, Cell]]:
    machine, target = audit.machine, audit.target
    yield "machine", Cell(f"{machine.name}, as it was recorded" if machine.recorded else machine.name)
    if machine.python:
        yield "Python", Cell(machine.python)
    cards = ", ".join(f"{count}x {name}" for name, count in machine.cards.items())
    cuda = f" (driver {machine.driver or '?'}, CUDA {machine.driver_cuda or '?'})" if machine.cards else ""
    why = machine.reasons.get("gpus", "")
    yield (
        "cards",
        Cell(cards + cuda if cards else f"not known: {why}" if why else "none", "plain" if cards else "muted"),
    )
    if target is not None:
        yield "judged for", Cell(f"{target.gpu} ({target.sm})", "strong")
        activations = f", activations {target.activation_format}" if target.activation_format else ""
        yield "model", Cell(f"{target.model}: {target.expert_format} experts{activations} ({target.method})")
        yield "layout", Cell(f"{target.layout}, all-to-all {target.a2a}")
        if target.shape is not None:
            shape = target.shape
            yield (
                "experts of a rank",
                Cell(f"{shape.experts} of width {shape.width}, hidden {shape.hidden}, top {shape.top_k}"),
            )


def _engine(engine: EngineAudit, target: Target | None) -> Iterator[Block]:
    name = f"{engine.name} {engine.version}".strip()
    areas = list(dict.fromkeys(ladder.area for ladder in engine.ladders))
    for area in areas:
        everything = [ladder for ladder in engine.ladders if ladder.area == area]
        ladders = [ladder for ladder in everything if not _only_inside(ladder)]
        inside = [ladder.name for ladder in everything if _only_inside(ladder)]
        yield Heading(f"{_AREAS.get(area, area)} backends of {name}")
        yield _table(engine.name, ladders)
        if inside:
            yield Paragraph(f"Only in an enumeration, no option takes them: {', '.join(inside)}.", "muted")
        yield from (_auto(auto) for auto in engine.autos if auto.area == area)
        yield from _reasons(ladders)
        yield from _sets(engine, ladders, target)
    for area, why in engine.not_read.items():
        yield Paragraph(f"{_AREAS.get(area, area)} backends: not known, {why}", "muted")


def _only_inside(ladder: Ladder) -> bool:
    """Whether no option takes the name: nobody can ask for it."""
    return ladder.steps[0].answer is Answer.FAIL


def _table(engine: str, ladders: list[Ladder]) -> Table:
    """Those that nothing is said against come first, then by how far they get."""
    ordered = sorted(ladders, key=lambda ladder: -_height(ladder))
    lines = []
    for ladder in ordered:
        name = ladder.name.removeprefix(f"{engine}.")
        cells = [Cell(name, "strong" if ladder.verdict is None else "plain", ladder.flag)]
        cells += [Cell(_SYMBOLS[s.answer], _TONES[s.answer], f"{s.rung}: {s.why}") for s in ladder.steps]
        cells.append(_verdict(ladder))
        lines.append(Line(tuple(cells)))
    columns = [Column("backend"), *(Column(_SHORT[rung]) for rung in Rung), Column("verdict", least=16)]
    caption = "✓ yes, ✗ no, ? not known: " + ", ".join(rung.value for rung in Rung)
    return Table(tuple(columns), tuple(lines), caption)


def _height(ladder: Ladder) -> float:
    """Rungs below the first that says no, and a little for each that says yes."""
    answers = [step.answer for step in ladder.steps]
    first = answers.index(Answer.FAIL) if Answer.FAIL in answers else len(answers)
    return first + answers.count(Answer.PASS) / 100


def _verdict(ladder: Ladder) -> Cell:
    verdict = ladder.verdict
    if verdict is not None:
        return Cell(_refusal(ladder, verdict), "bad", verdict.why)
    unknown = next((step for step in ladder.steps if step.answer is Answer.NOT_KNOWN), None)
    if unknown is None:
        return Cell("works", "good")
    proven = [step.rung for step in ladder.steps if step.rung in _ON_A_GPU and step.answer is Answer.PASS]
    if proven:
        return Cell(f"{proven[-1]} here", "good", unknown.why)
    return Cell("unproven" if unknown.rung in _ON_A_GPU else f"{unknown.rung}?", "plain", unknown.why)


def _refusal(ladder: Ladder, verdict: Step) -> str:
    """In a few words; what is accepted and then runs something else names that."""
    if verdict.rung is not Rung.REACHABLE:
        return f"not {verdict.rung}"
    if ladder.destination and verdict.why.startswith("accepted"):
        return f"runs {ladder.destination.rpartition('.')[2]}"
    return "refused" if verdict.why.startswith("refused") else "not reachable"


def _auto(auto: Auto) -> Paragraph:
    """What is chosen when nothing is asked for."""
    if auto.answer is Answer.PASS and auto.destination:
        where = f" ({auto.proofs[-1].where})" if auto.proofs else ""
        return Paragraph(f"Asked for nothing, it runs {auto.destination}{where}: {auto.why}")
    return Paragraph(f"Asked for nothing: {auto.why}", "muted" if auto.answer is Answer.NOT_KNOWN else "plain")


def _reasons(ladders: list[Ladder]) -> Iterator[Block]:
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


_OWN_NAME = "(its name)"


def _open(ladder: Ladder) -> list[Step]:
    """Rungs below those on a GPU that are not known, of a backend that nothing is said against."""
    if ladder.verdict is not None:
        return []
    return [step for step in ladder.steps if step.answer is Answer.NOT_KNOWN and step.rung not in _ON_A_GPU]


def _reason(step: Step, why: str, names: list[str], tone: Tone) -> Cell:
    who = ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])} and {len(names) - 7} more"
    said = step.why if len(names) == 1 else why
    where = f" [{step.proofs[-1].where}]" if step.answer is Answer.FAIL and step.proofs else ""
    hint = f" Try: {step.hint}." if step.hint else ""
    rung = f"not {step.rung}" if step.answer is Answer.FAIL else step.rung.value
    return Cell(f"{who}: {rung}: {_cut(said)}{where}{hint}", tone)


def _cut(text: str, most: int = 300) -> str:
    """The page's tables have every text whole."""
    return text.rstrip(".") + "." if len(text) <= most else f"{text[:most].rstrip()} ..."


def _sets(engine: EngineAudit, ladders: list[Ladder], target: Target | None) -> Iterator[Block]:
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
    texts = [text for found in capability.code if (text := _one(found))]
    good = any(found.coverage.runs for found in capability.code)
    return Cell("; ".join(texts) or "no code found", "good" if good else "plain")


def _one(found: CodeSet) -> str:
    cover = found.coverage
    said = []
    if cover.units:
        said.append(f"{cover.runs:,} of {cover.units:,} units run" + (f", {cover.exact:,} exact" if cover.runs else ""))
    if found.build is not None:
        said.append(
            {Answer.PASS: "can be built", Answer.FAIL: "cannot be built"}.get(found.build.answer, "built on call")
        )
    return ", ".join(said)


def _symbols(symbols: Iterable[SymbolAnswer]) -> Iterator[Block]:
    for answer in symbols:
        yield Heading(answer.symbol)
        yield Paragraph(f"{_SYMBOLS[answer.answer]} {answer.why}", _TONES[answer.answer])
        facts = [("really lives at", Cell(answer.home))] if answer.home and answer.home != answer.symbol else []
        facts += [
            ("instead" if not number else "", Cell(name, "strong")) for number, name in enumerate(answer.instead[:6])
        ]
        facts += [("try", Cell(answer.hint))] if answer.hint else []
        if facts:
            yield Facts(tuple(facts))
        if answer.gates:
            yield Paragraph("An import does not meet these conditions on the card; a call does:")
            yield Listing(tuple(_gate(gate) for gate in answer.gates))
        if answer.proofs:
            yield _proofs(answer.proofs)


def _gate(gate: Gate) -> Cell:
    cards = f": compute capability {', '.join(gate.targets)}" if gate.targets else ""
    said = {Answer.PASS: "lets this card through", Answer.FAIL: "refuses this card"}.get(gate.answer, "")
    return Cell(f"{gate.text}{cards}{f' ({said})' if said else ''} [{gate.proof.where}]", _TONES[gate.answer])


def _proofs(proofs: Iterable[Proof]) -> Table:
    lines = tuple(Line((Cell(proof.kind), Cell(proof.where), Cell(proof.text, "muted"))) for proof in proofs)
    return Table((Column("proof"), Column("where", least=20), Column("what stands there", least=20)), lines)


def _findings(findings: Iterable[AuditFinding]) -> Iterator[Block]:
    cells = tuple(
        Cell(
            f"{found.subject}: {found.text}." + (f" Try: {found.hint}." if found.hint else ""),
            _LEVEL_TONES[found.level],
        )
        for found in findings
    )
    if cells:
        yield Heading("What is odd")
        yield Listing(cells)


def _flags(flags: tuple[Flag, ...]) -> Iterator[Block]:
    yield Heading("Flags worth trying")
    if not flags:
        yield Paragraph("None: every backend has a rung that says no, or could not be followed to its kernel.", "warn")
        return
    proven = [flag for flag in flags if flag.proven]
    unproven = [flag for flag in flags if not flag.proven]
    if proven:
        yield Paragraph("Seen running:", "good")
        yield Code("\n".join(flag.flag for flag in proven))
    if unproven:
        yield Paragraph("Nobody has proved these here; a rung that is not known is named:")
        yield Code("\n".join(_flag_line(flag) for flag in unproven))


def _flag_line(flag: Flag) -> str:
    return flag.flag + (f"  # not known: {', '.join(flag.open)}" if flag.open else "")


def _everything(engine: EngineAudit) -> Iterator[Block]:
    """Every rung of every backend with its proofs, one table an area: for pages."""
    for area in dict.fromkeys(ladder.area for ladder in engine.ladders):
        yield Heading(f"Every rung of {engine.name}'s {_AREAS.get(area, area)} backends")
        lines = [line for ladder in engine.ladders if ladder.area == area for line in _rungs(ladder)]
        yield Table((Column("rung"), Column("what was found", least=20), Column("where", least=20)), tuple(lines))


def _rungs(ladder: Ladder) -> Iterator[Line]:
    yield Line((Cell(ladder.name, "strong"), Cell(ladder.flag), Cell(ladder.destination)), "group")
    for step in ladder.steps:
        said = step.why + (f" Try: {step.hint}." if step.hint else "")
        yield Line((Cell(f"{_SYMBOLS[step.answer]} {step.rung}", _TONES[step.answer]), Cell(said), Cell("")))
        for proof in step.proofs:
            yield Line((Cell(""), Cell(proof.text, "muted"), Cell(proof.where, "muted")))
