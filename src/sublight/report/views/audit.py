"""The document of an audit: backends and rungs in one table, the reasons, the two sets of targets, what to try."""

from collections.abc import Iterable, Iterator

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
    ladders = [ladder for engine in audit.engines for ladder in engine.ladders]
    failing = [ladder for ladder in ladders if ladder.verdict is not None]
    proven = [
        ladder for ladder in ladders if any(s.rung in _ON_A_GPU and s.answer is Answer.PASS for s in ladder.steps)
    ]
    return (
        (
            "nothing against them",
            f"{len(ladders) - len(failing)} of {len(ladders)}",
            "backends of which no rung says no",
        ),
        ("seen on a GPU", str(len(proven)), "executed, by a trial, a log or a trace"),
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
        ladders = [ladder for ladder in engine.ladders if ladder.area == area]
        yield Heading(f"{_AREAS.get(area, area)} backends of {name}")
        yield _table(ladders)
        yield from (_auto(auto) for auto in engine.autos if auto.area == area)
        yield from _reasons(ladders)
        yield from _sets(engine, area, target)
    for area, why in engine.not_read.items():
        yield Paragraph(f"{_AREAS.get(area, area)} backends: not known, {why}", "muted")


def _table(ladders: list[Ladder]) -> Table:
    """Those that nothing is said against come first, then by how far they get."""
    ordered = sorted(ladders, key=lambda ladder: -_height(ladder))
    lines = []
    for ladder in ordered:
        cells = [Cell(ladder.name, "strong" if ladder.verdict is None else "plain", ladder.flag)]
        cells += [Cell(_SYMBOLS[s.answer], _TONES[s.answer], f"{s.rung}: {s.why}") for s in ladder.steps]
        cells.append(_verdict(ladder))
        lines.append(Line(tuple(cells)))
    columns = [Column("backend"), *(Column(_SHORT[rung]) for rung in Rung), Column("verdict", least=18)]
    caption = "✓ yes, ✗ no, ? not known: " + ", ".join(str(rung) for rung in Rung)
    return Table(tuple(columns), tuple(lines), caption)


def _height(ladder: Ladder) -> float:
    """Rungs below the first that says no, and a little for each that says yes."""
    answers = [step.answer for step in ladder.steps]
    first = answers.index(Answer.FAIL) if Answer.FAIL in answers else len(answers)
    return first + answers.count(Answer.PASS) / 100


def _verdict(ladder: Ladder) -> Cell:
    verdict = ladder.verdict
    if verdict is not None:
        runs = f", runs {_last(ladder.destination)}" if verdict.rung is Rung.REACHABLE and ladder.destination else ""
        return Cell(f"not {verdict.rung}{runs}", "bad", verdict.why)
    unknown = next((step for step in ladder.steps if step.answer is Answer.NOT_KNOWN), None)
    if unknown is None:
        return Cell("works", "good")
    proven = [step.rung for step in ladder.steps if step.rung in _ON_A_GPU and step.answer is Answer.PASS]
    if proven:
        return Cell(f"{proven[-1]} here", "good", unknown.why)
    return Cell("unproven" if unknown.rung in _ON_A_GPU else f"{unknown.rung}?", "plain", unknown.why)


def _last(destination: str) -> str:
    return destination.rpartition(".")[2]


def _auto(auto: Auto) -> Paragraph:
    """What is chosen when nothing is asked for."""
    if auto.answer is Answer.PASS and auto.destination:
        where = f" ({auto.proofs[-1].where})" if auto.proofs else ""
        return Paragraph(f"Asked for nothing, it runs {auto.destination}{where}: {auto.why}")
    return Paragraph(f"Asked for nothing: {auto.why}", "muted" if auto.answer is Answer.NOT_KNOWN else "plain")


def _reasons(ladders: list[Ladder]) -> Iterator[Block]:
    """Every "no" and every open question, each once, with the backends it is about."""
    told: dict[tuple[Rung, Answer, str], tuple[Step, list[str]]] = {}
    for ladder in ladders:
        for step in ladder.steps:
            if step.answer is Answer.FAIL or (step.answer is Answer.NOT_KNOWN and step.rung not in _ON_A_GPU):
                told.setdefault((step.rung, step.answer, step.why), (step, []))[1].append(ladder.name)
    for answer, title in ((Answer.FAIL, "Why not"), (Answer.NOT_KNOWN, "What is not known")):
        mine = [(step, names) for (_, given, _), (step, names) in told.items() if given is answer]
        if mine:
            yield Heading(title, 3)
            yield Listing(tuple(_reason(step, names) for step, names in mine))


def _reason(step: Step, names: list[str]) -> Cell:
    who = ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} more"
    where = f" [{step.proofs[-1].where}]" if step.answer is Answer.FAIL and step.proofs else ""
    hint = f" Try: {step.hint}." if step.hint else ""
    return Cell(f"{who}: {step.rung}: {step.why}{where}.{hint}", "plain" if step.answer is Answer.FAIL else "muted")


def _sets(engine: EngineAudit, area: str, target: Target | None) -> Iterator[Block]:
    """What gates claim beside what was shipped, for backends that have either."""
    coded = [code for code in engine.code if code.area == area and (code.capability.code or code.capability.claimed)]
    if not coded or target is None:
        return
    columns = (
        Column("backend"),
        Column("gates list", least=10),
        Column("shipped code objects", least=20),
        Column(f"for {target.sm}", least=14),
    )
    lines = tuple(
        Line(
            (
                Cell(code.name),
                Cell(_claimed(code.capability)),
                Cell(_shipped(code.capability)),
                _for_target(code.capability),
            )
        )
        for code in coded
    )
    yield Heading("What gates claim, and what code is there", 3)
    yield Table(
        columns, lines, "A list in Python is a claim; only code objects and a compiler that knows the card count."
    )


def _claimed(capability: Capability) -> str:
    if capability.claimed:
        return ", ".join(capability.claimed)
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
    return Cell("; ".join(texts) or "nothing to hold against", "good" if good else "plain")


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
        facts += [("instead", Cell(name, "strong")) for name in answer.instead[:6]]
        facts += [("try", Cell(answer.hint))] if answer.hint else []
        if facts:
            yield Facts(tuple(facts))
        if answer.gates:
            yield Paragraph("An import does not meet these conditions on the card; a call does:")
            yield Listing(tuple(Cell(f"{gate.text} [{gate.proof.where}]", "warn") for gate in answer.gates))
        if answer.proofs:
            yield _proofs(answer.proofs)


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
    """Every rung of every backend with its proofs: for pages."""
    for ladder in engine.ladders:
        yield Heading(f"{engine.name}: {_AREAS.get(ladder.area, ladder.area)} {ladder.name}")
        lines = []
        for step in ladder.steps:
            tone = _TONES[step.answer]
            said = f"{step.why}" + (f" Try: {step.hint}." if step.hint else "")
            lines.append(Line((Cell(f"{_SYMBOLS[step.answer]} {step.rung}", tone), Cell(said), Cell(""))))
            lines += [Line((Cell(""), Cell(proof.text, "muted"), Cell(proof.where, "muted"))) for proof in step.proofs]
        yield Table((Column("rung"), Column("what was found"), Column("where")), tuple(lines))
