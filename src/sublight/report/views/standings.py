"""The newest audits, host report and benchmarks of a campaign, in short: the records themselves say it whole."""

from collections import Counter
from collections.abc import Iterator, Sequence

from sublight.audit.ladder import Answer, Ladder
from sublight.campaign.attained import Attained, BenchStanding
from sublight.campaign.backends import AuditStanding, Change, Engine
from sublight.campaign.machine import HostStanding
from sublight.report.blocks import Block, Cell, Code, Column, Heading, Line, Listing, Paragraph, Table
from sublight.report.views.audit import flag_line, height, odd_cells, verdict_cell
from sublight.report.views.audit_reasons import unread
from sublight.report.views.audit_shared import AREAS, ON_A_GPU
from sublight.report.views.host import knob_table
from sublight.rows import ROWS
from sublight.tuning.record import Verdict
from sublight.units import counted, show_bytes, show_percent, show_rate, show_time

_MANY = 4
_MOST_CHANGES = 12
_KINDS = {"bench-kernels": "kernels", "bench-ops": "rows of a step", "bench-comm": "collectives"}
_UNITS = {"bench-kernels": "time of a call", "bench-ops": "time of all calls of a step", "bench-comm": "time of a call"}


def when(written_at: str) -> str:
    """A record's moment, in UTC."""
    return written_at.replace("T", " ").removesuffix("Z")


def audit_blocks(audit: AuditStanding) -> Iterator[Block]:
    """One audit: a table an engine, what it runs unasked, what to try, what changed, what is odd."""
    target = audit.target
    for engine in audit.engines:
        yield Heading(f"Backends of {_title(engine)}")
        asked = f"{target.model} on {target.gpu} ({target.sm}), {target.layout}, all-to-all {target.a2a}"
        yield Paragraph(f"{asked}; audited {when(audit.written_at)} on {audit.machine} ({audit.file})", "muted")
        if engine.ladders:
            yield from _backends(engine)
        yield from _unasked(engine)
        yield from _changes(engine)
        if engine.flags:
            yield Paragraph("Flags worth trying, those that were seen running first:")
            yield Code("\n".join(flag_line(flag) for flag in engine.flags))
        elif engine.ladders:
            yield Paragraph("No flag is worth trying: every backend has a rung that says no, or is not known.", "warn")
    if audit.odd:
        yield Heading(f"What is odd in {audit.file}", 3)
        yield Listing(odd_cells(audit.odd))


def _title(engine: Engine) -> str:
    return f"{engine.name} {engine.version}".strip()


def _backends(engine: Engine) -> Iterator[Block]:
    """Those that nothing is said against come first; many that are refused alike stand in one line below the table."""
    columns = (
        Column("backend"),
        Column("verdict", least=14),
        Column("seen running", priority=1, least=16),
        Column("why", priority=2, least=24),
    )
    lines: list[Line] = []
    below: list[Cell] = []
    for area in dict.fromkeys(ladder.area for ladder in engine.ladders):
        ladders = sorted((x for x in engine.ladders if x.area == area), key=lambda ladder: -height(ladder))
        many = _many(ladders)
        title = AREAS.get(area, area)
        clear = sum(ladder.verdict is None for ladder in ladders)
        head = Cell(title, "strong")
        lines.append(Line((head, Cell(f"{clear} of {len(ladders)} open"), Cell(""), Cell("")), "group"))
        lines += [_backend(engine.name, x) for x in ladders if x.verdict is None or verdict_cell(x).text not in many]
        for verdict, alike in many.items():
            names = ", ".join(ladder.name.removeprefix(f"{engine.name}.") for ladder in alike)
            below.append(Cell(f"{title}, {verdict}: {names}", "muted"))
    yield Table(columns, tuple(lines), "open: no rung says no to it; unproven: nobody has seen it run here")
    if below:
        yield Listing(tuple(below))


def _many(ladders: list[Ladder]) -> dict[str, list[Ladder]]:
    """Backends that are refused alike, by verdict, where they are many: the audit itself has the reason of each."""
    alike: dict[str, list[Ladder]] = {}
    for ladder in ladders:
        if ladder.verdict is not None:
            alike.setdefault(verdict_cell(ladder).text, []).append(ladder)
    return {verdict: group for verdict, group in alike.items() if len(group) >= _MANY}


def _backend(engine: str, ladder: Ladder) -> Line:
    verdict = ladder.verdict
    name = Cell(ladder.name.removeprefix(f"{engine}."), "plain" if verdict else "strong", ladder.flag)
    why = verdict.why if verdict else ""
    return Line((name, verdict_cell(ladder), _seen(ladder), Cell(_cut(why), "muted", why)))


def _seen(ladder: Ladder) -> Cell:
    """Where it was seen: the first rung on a GPU that passed."""
    step = next((s for s in ladder.steps if s.rung in ON_A_GPU and s.answer is Answer.PASS), None)
    if step is None:
        return Cell("")
    proof = step.proofs[0] if step.proofs else None
    return Cell(f"{proof.kind}: {proof.where}" if proof else "yes", "good", proof.text if proof else step.why)


def _cut(text: str, most: int = 120) -> str:
    return text if len(text) <= most else f"{text[:most].rstrip()} ..."


def _unasked(engine: Engine) -> Iterator[Block]:
    for auto in engine.autos:
        area = AREAS.get(auto.area, auto.area)
        if auto.answer is Answer.PASS and auto.destination:
            yield Paragraph(f"Asked for nothing, {area} runs {auto.destination}: {auto.why}")
        else:
            yield Paragraph(f"Asked for nothing, {area}: {auto.why}", "muted")
    yield from unread(engine.not_read)


def _changes(engine: Engine) -> Iterator[Block]:
    """Against the earlier audit, with what else was different, which may be why."""
    if not engine.before:
        return
    versions = f"{engine.before_version or '?'} then, {engine.version or '?'} now"
    same = engine.version == engine.before_version
    other = [*([] if same else [versions]), *engine.asked_otherwise]
    told = f"{engine.before} ({'; '.join(other) if other else 'the same version, asked the same'})"
    if not engine.changes:
        yield Paragraph(f"Every backend stands as in {told}.")
        return
    yield Heading(f"What changed in {engine.name}", 3)
    yield Paragraph(f"Since {told}:")
    shown = engine.changes[:_MOST_CHANGES]
    yield Listing(tuple(_change(engine.name, change) for change in shown))
    if rest := engine.changes[_MOST_CHANGES:]:
        areas = Counter(AREAS.get(change.area, change.area) for change in rest)
        named = ", ".join(f"{count} of {area}" for area, count in areas.items())
        more = counted(len(rest), "more change")
        yield Paragraph(f"{more}: {named}; --json has them all.", "muted")


def _change(engine: str, change: Change) -> Cell:
    was = verdict_cell(change.was).text if change.was else "not there"
    now = verdict_cell(change.now) if change.now else Cell("not there any more", "bad")
    name = f"{AREAS.get(change.area, change.area)} {change.name.removeprefix(f'{engine}.')}"
    why = change.now.verdict.why if change.now and change.now.verdict else ""
    if change.was and change.now and was == now.text:
        was, now = f"{was} ({change.was.destination or '?'})", Cell(f"{now.text} ({change.now.destination or '?'})")
    return Cell(f"{name}: {was}, now {now.text}{f' ({_cut(why)})' if why else ''}", now.tone)


def host_blocks(host: HostStanding) -> Iterator[Block]:
    """What is left to do about the machine."""
    yield Heading("The machine")
    cards = ", ".join(f"{count}x {name}" for name, count in host.cards.items()) or "no card was read"
    known = host.counts
    rest = f"{counted(known.get(Verdict.FINE, 0), 'knob')} fine, {known.get(Verdict.NOT_KNOWN, 0)} not known"
    yield Paragraph(f"{host.name}: {cards}; {rest}; looked at {when(host.written_at)} ({host.file})", "muted")
    if not host.to_do:
        yield Paragraph("Nothing that was read is to be changed or checked.", "good")
        return
    yield knob_table(host.to_do)
    yield Listing(tuple(Cell(f"{finding.knob}: {finding.why}") for finding in host.to_do))


def bench_blocks(benches: Sequence[BenchStanding]) -> Iterator[Block]:
    """The fastest of everything that was timed, one table."""
    if not benches:
        return
    columns = (
        Column("what", least=20),
        Column("time", "right"),
        Column("of one read", "right", 1),
        Column("by", least=12),
    )
    lines: list[Line] = []
    for bench in benches:
        of = ", ".join(part for part in (bench.model, bench.layout, bench.over, bench.device) if part)
        head = f"{_KINDS.get(bench.kind, bench.kind)}, {_UNITS.get(bench.kind, 'time')}: {of} ({bench.file})"
        lines.append(Line((Cell(head, "strong"), Cell(""), Cell(""), Cell(_remark(bench), "muted")), "group"))
        lines += [_attained(one) for one in bench.attained]
    caption = (
        "of one read: a launch that only reads the same bytes, in the same run, over the time; of a row, as many such "
        "launches as it has calls"
    )
    yield Heading("What was attained")
    yield Table(columns, tuple(lines), caption)
    for bench in benches:
        if bench.left_out:
            kind = _KINDS.get(bench.kind, bench.kind)
            yield Paragraph(f"Not shown, as {bench.file} is shown of {kind}: {'; '.join(bench.left_out)}", "warn")
    if any(bench.rehearsal for bench in benches):
        yield Paragraph("A rehearsal ran on a CPU: its times stand for no GPU's.", "warn")


def _remark(bench: BenchStanding) -> str:
    parts = ["a rehearsal"] if bench.rehearsal else []
    parts += [f"memory read at {show_rate(bench.read_bytes_per_s)}"] if bench.read_bytes_per_s is not None else []
    parts += [f"{bench.without_time} without a time"] if bench.without_time else []
    return ", ".join(parts)


def _attained(one: Attained) -> Line:
    what = [ROWS[one.row].title if one.row in ROWS else one.row] if one.row else []
    what += [one.operation] if one.operation else []
    if one.tokens is not None:
        what.append(counted(one.tokens, "token"))
    what += [show_bytes(one.payload_bytes)] if one.payload_bytes is not None else []
    share = show_percent(one.read_s / one.time_s) if one.read_s is not None else ""
    return Line((Cell(", ".join(what)), Cell(show_time(one.time_s)), Cell(share), Cell(one.by)))
