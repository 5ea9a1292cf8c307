"""The document of an audit: backends and rungs in one table, the reasons, the two sets of targets, what to try."""

from collections.abc import Iterable, Iterator

import msgspec

from sublight.audit.engines.base import Gate
from sublight.audit.flags import stands_in
from sublight.audit.ladder import Answer, Ladder, Proof, Rung, Step
from sublight.audit.record import Audit, AuditFinding, Auto, Choice, EngineAudit, Flag, Stop, SymbolAnswer
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
from sublight.report.views.audit_reasons import (
    SYMBOLS,
    TONES,
    every_rung,
    lists_without,
    reasons,
    sets,
    tried,
    unread,
)
from sublight.report.views.audit_shared import AREAS, ON_A_GPU, shared, told_once
from sublight.units import counted, show_time

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
_LEVEL_TONES: dict[str, Tone] = {"error": "bad", "warn": "warn", "info": "plain"}


def audit_document(audit: Audit) -> Document:
    """What works, why the rest does not, what was odd, and last the flags worth trying."""
    blocks: list[Block] = [Facts(tuple(_question(audit)))]
    if audit.engines:
        blocks.insert(0, Headline(_headline(audit)))
    for engine in audit.engines:
        blocks += _engine(engine, audit.target, audit.choices)
    blocks += _symbols(audit.symbols)
    blocks += _chosen_elsewhere(audit)
    blocks += _findings(audit.findings)
    if any(engine.ladders for engine in audit.engines):
        blocks += _flags(audit.flags, audit.stops)
    more = [block for engine in audit.engines for block in every_rung(engine)]
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
        parts.append(f"{counted(timings.imported, 'symbol')} imported in {show_time(timings.importing_s)}")
    if any(step.proofs and step.proofs[0].kind == "trial" for step in _steps(audit)):
        parts.append(f"tried in {show_time(timings.trying_s)}")
    return f"Sublight: {', '.join(parts)}{'; nothing had changed' if timings.cached else ''}"


def _steps(audit: Audit) -> Iterator[Step]:
    return (step for engine in audit.engines for ladder in engine.ladders for step in ladder.steps)


def _headline(audit: Audit) -> tuple[tuple[str, str, str], ...]:
    ladders = [ladder for engine in audit.engines for ladder in engine.ladders if not _only_inside(ladder)]
    failing = [ladder for ladder in ladders if ladder.verdict is not None and ladder.verdict.rung is not Rung.FAST]
    seen = [ladder for ladder in ladders if any(s.rung in ON_A_GPU and s.answer is Answer.PASS for s in ladder.steps)]
    stops = [
        (
            f"{engine} does not start",
            ", ".join(AREAS.get(stop.area, stop.area) for stop in mine),
            _remedy(mine),
        )
        for engine in dict.fromkeys(stop.engine for stop in audit.stops)
        if (mine := [stop for stop in audit.stops if stop.engine == engine])
    ]
    return (
        *stops,
        (
            "nothing against them",
            f"{len(ladders) - len(failing)} of {len(ladders)}",
            "backends that no rung says no to",
        ),
        ("seen on a GPU", str(len(seen)), "by a trial, a log or a trace"),
        ("not usable so", str(len(failing)), "the first rung that says no is the reason"),
    )


def _remedy(stops: Iterable[Stop]) -> str:
    """What can be done about an engine that refuses what it takes by itself."""
    lost = [AREAS.get(stop.area, stop.area) for stop in stops if not stop.instead]
    if lost:
        return f"it refuses what it takes by itself; each {' and '.join(lost)} backend has a no"
    return "it refuses what it takes by itself; a flag for another backend is needed"


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
        weights = "experts" if target.shape is not None else "weights, no experts"
        yield "model", Cell(f"{target.model}: {target.expert_format} {weights}{activations} ({target.method})")
        yield "layout", Cell(f"{target.layout}, all-to-all {target.a2a}")
        if target.shape is not None:
            shape = target.shape
            yield (
                "experts of a rank",
                Cell(f"{shape.experts} of width {shape.width}, hidden {shape.hidden}, top {shape.top_k}"),
            )


def _engine(engine: EngineAudit, target: Target | None, choices: Iterable[Choice]) -> Iterator[Block]:
    name = f"{engine.name} {engine.version}".strip()
    areas = list(dict.fromkeys(ladder.area for ladder in engine.ladders))
    alike = shared(engine.ladders)
    shipped: set[str] = set()
    for area in areas:
        everything = [ladder for ladder in engine.ladders if ladder.area == area]
        ladders = [ladder for ladder in everything if not _only_inside(ladder)]
        inside = [ladder.name for ladder in everything if _only_inside(ladder)]
        yield Heading(f"{AREAS.get(area, area)} backends of {name}")
        yield _table(engine.name, ladders)
        if inside:
            yield Paragraph(f"Only in an enumeration, no option takes them: {', '.join(inside)}.", "muted")
        yield from (_auto(auto) for auto in engine.autos if auto.area == area)
        yield from (
            Paragraph(_choice(made), "muted" if made.other_run else "plain")
            for made in choices
            if (made.engine, made.area) == (engine.name, area)
        )
        yield from tried(ladders)
        yield from reasons(ladders, lists_without(engine, area, target), alike)
        yield from sets(engine, ladders, target, shipped)
    yield from told_once(alike)
    yield from unread(engine.not_read)


def _only_inside(ladder: Ladder) -> bool:
    """Whether no option takes the name: nobody can ask for it."""
    return ladder.steps[0].answer is Answer.FAIL


def _table(engine: str, ladders: list[Ladder]) -> Table:
    """Those that nothing is said against come first, then by how far they get."""
    ordered = sorted(ladders, key=lambda ladder: -height(ladder))
    lines = []
    for ladder in ordered:
        name = ladder.name.removeprefix(f"{engine}.")
        cells = [Cell(name, "strong" if ladder.verdict is None else "plain", ladder.flag)]
        cells += [Cell(SYMBOLS[s.answer], TONES[s.answer], f"{s.rung}: {s.why}") for s in ladder.steps]
        cells.append(verdict_cell(ladder))
        lines.append(Line(tuple(cells)))
    rungs = [Column(_SHORT[rung], narrow=str(number)) for number, rung in enumerate(Rung, 1)]
    columns = [Column("backend"), *rungs, Column("verdict", least=16)]
    listed = ", ".join(f"{number}\N{NO-BREAK SPACE}{rung}" for number, rung in enumerate(Rung, 1))
    caption = f"✓ yes, ✗ no, ? not known: {listed}"
    return Table(tuple(columns), tuple(lines), caption)


def height(ladder: Ladder) -> float:
    """Rungs below the first that says no, and a little for each that says yes; less for what only stands in."""
    answers = [step.answer for step in ladder.steps]
    first = answers.index(Answer.FAIL) if Answer.FAIL in answers else len(answers)
    return first + answers.count(Answer.PASS) / 100 - (0.5 if stands_in(ladder) else 0)


def verdict_cell(ladder: Ladder) -> Cell:
    """How a backend stands, in a word or two."""
    verdict = ladder.verdict
    if verdict is not None:
        but = ", yet it ran" if ladder.has_run and verdict.rung not in ON_A_GPU else ""
        return Cell(f"{_refusal(ladder, verdict)}{but}", "bad", verdict.why)
    unknown = next((step for step in ladder.steps if step.answer is Answer.NOT_KNOWN), None)
    if unknown is None:
        return Cell("works", "good")
    proven = [step.rung for step in ladder.steps if step.rung in ON_A_GPU and step.answer is Answer.PASS]
    if proven:
        return Cell(f"{proven[-1]} here", "good", unknown.why)
    return Cell("unproven" if unknown.rung in ON_A_GPU else f"{unknown.rung}?", "plain", unknown.why)


def _refusal(ladder: Ladder, verdict: Step) -> str:
    """In a few words; what is accepted and then runs something else names that."""
    if verdict.rung is not Rung.REACHABLE:
        return f"not {verdict.rung}"
    if ladder.destination and verdict.why.startswith("accepted"):
        return f"runs {ladder.destination.rpartition('.')[2]}"
    return "refused" if verdict.why.startswith("refused") else "not reachable"


def _auto(auto: Auto) -> Paragraph:
    """What is chosen when nothing is asked for."""
    why = _folded(auto.why)
    if auto.answer is Answer.PASS and auto.destination:
        where = f" ({auto.proofs[-1].where})" if auto.proofs else ""
        return Paragraph(f"Asked for nothing, it runs {auto.destination}{where}: {why}")
    return Paragraph(f"Asked for nothing: {why}", "muted" if auto.answer is Answer.NOT_KNOWN else "plain")


def _choice(made: Choice) -> str:
    where = f" ({made.proofs[0].where})" if made.proofs else ""
    return f"In the log{', which is of another run' if made.other_run else ''}, {made.text}{where}."


def _chosen_elsewhere(audit: Audit) -> Iterator[Block]:
    """What a log says was chosen of which there is no table: other engines, areas that were not asked for."""
    shown = {(engine.name, ladder.area) for engine in audit.engines for ladder in engine.ladders}
    rest = [made for made in audit.choices if (made.engine, made.area) not in shown]
    if rest:
        yield Heading("What the engine chose besides")
        yield Listing(tuple(Cell(f"{AREAS.get(made.area, 'other layers')}: {_choice(made)}") for made in rest))


def _folded(why: str) -> str:
    """A list of "NAME: reason" at the end of a sentence, each reason once behind the names that it is told of."""
    start, before, rest = why.partition("; before it: ")
    reasons: dict[str, list[str]] = {}
    for item in rest.split("; "):
        name, colon, reason = item.partition(": ")
        if not colon:
            return why
        reasons.setdefault(reason, []).append(name)
    return start + before + "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


def _symbols(symbols: Iterable[SymbolAnswer]) -> Iterator[Block]:
    for answer in symbols:
        yield Heading(answer.symbol)
        yield Paragraph(f"{SYMBOLS[answer.answer]} {answer.why}", TONES[answer.answer])
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
    return Cell(f"{gate.text}{cards}{f' ({said})' if said else ''} [{gate.proof.where}]", TONES[gate.answer])


def _proofs(proofs: Iterable[Proof]) -> Table:
    lines = tuple(Line((Cell(proof.kind), Cell(proof.where), Cell(proof.text, "muted"))) for proof in proofs)
    return Table((Column("proof"), Column("where", least=20), Column("what stands there", least=20)), lines)


def _findings(findings: Iterable[AuditFinding]) -> Iterator[Block]:
    cells = odd_cells(findings)
    if cells:
        yield Heading("What is odd")
        yield Listing(cells)


def odd_cells(findings: Iterable[AuditFinding]) -> tuple[Cell, ...]:
    """Each finding in a line."""
    return tuple(
        Cell(
            f"{found.subject}: {found.text}." + (f" Try: {found.hint}." if found.hint else ""),
            _LEVEL_TONES[found.level],
        )
        for found in findings
    )


def _flags(flags: tuple[Flag, ...], stops: tuple[Stop, ...]) -> Iterator[Block]:
    lost = dict.fromkeys(stop.engine for stop in stops if not stop.instead)
    yield Heading("Flags once it starts" if lost else "Flags worth trying")
    for stop in stops:
        area = AREAS.get(stop.area, stop.area)
        needs = (
            f"it needs one of these: {', '.join(stop.instead)}"
            if stop.instead
            else f"each {area} backend has a no, and none of these flags changes that"
        )
        yield Paragraph(
            f"{stop.engine} does not start so: it refuses what it takes for {area} by itself; {needs}.", "bad"
        )
    if not flags:
        yield Paragraph("None: every backend has a rung that says no, or could not be followed to its kernel.", "warn")
        return
    proven = [flag for flag in flags if flag.proven]
    unproven = [flag for flag in flags if not flag.proven]
    if proven:
        yield Paragraph("Seen running:", "good")
        yield Code("\n".join(flag_line(msgspec.structs.replace(flag, open=())) for flag in proven))
    if unproven:
        yield Paragraph("Nobody has proved these here; a rung that is not known is named:")
        yield Code("\n".join(flag_line(flag) for flag in unproven))


def flag_line(flag: Flag) -> str:
    """The flag, and what is open about it, or slow, as a comment of the shell."""
    said = [flag.slow] if flag.slow else []
    said += [f"not known: {', '.join(flag.open)}"] if flag.open else []
    return flag.flag + (f"  # {'; '.join(said)}" if said else "")
