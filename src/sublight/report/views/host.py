"""The document of a look at a machine: what to do in one table, the reasons behind it, and the machine itself."""

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
    Note,
    Paragraph,
    Table,
    Tone,
)
from sublight.tuning.card import GpuFacts
from sublight.tuning.machine import MachineFacts, Topology
from sublight.tuning.record import Cost, Finding, Gain, HostReport, Verdict
from sublight.units import show_gib

_TONES: dict[Verdict, Tone] = {
    Verdict.CHANGE: "bad",
    Verdict.CHECK: "warn",
    Verdict.NOT_KNOWN: "muted",
    Verdict.FINE: "good",
}
_SYMBOLS = {Verdict.CHANGE: "✗", Verdict.CHECK: "!", Verdict.NOT_KNOWN: "?", Verdict.FINE: "✓"}
_WORDS = {
    Verdict.CHANGE: ("to change", "set as others measured a loss, or as cannot work"),
    Verdict.CHECK: ("to check", "this reading does not decide it, or it has a price"),
    Verdict.NOT_KNOWN: ("not known", "nothing was read; what to run stands below"),
    Verdict.FINE: ("fine", "as recommended"),
}
_GAIN_TONES: dict[Gain, Tone] = {Gain.MEASURED: "strong", Gain.PLAUSIBLE: "plain", Gain.NONE: "muted"}
_REACH = {
    "milliseconds a step": "ms a step",
    "percents of a step": "% of a step",
    "jitter or start-up": "jitter",
}
_HOW = {
    "local": "asked here",
    "ssh": "asked through ssh",
    "folder": "read from a folder of command output",
    "snapshot": "read from a saved record",
}


def host_document(report: HostReport) -> Document:
    """Counts, the machine in a few lines, the table of knobs, and the reason of each."""
    blocks: list[Block] = [
        _headline(report),
        _machine(report.machine),
        Heading("Knobs, by what they can cost"),
        knob_table(report.findings),
        *_contradictions(report.findings),
        *_why(report.findings),
        *_to_run(report.findings),
        *(Note(remark, "info") for remark in report.remarks),
    ]
    more: list[Block] = [
        *_everything(report.findings),
        *_cards(report.machine),
        *_topology("How the GPUs are joined", report.machine.topology),
        *_topology("Which pairs may read each other's memory", report.machine.peer_access),
    ]
    title = f"Host: {report.name}"
    return Document(title, tuple(blocks), f"Sublight: {_HOW[report.how]}, and nothing was changed", tuple(more))


def _headline(report: HostReport) -> Headline:
    figures = []
    for verdict in Verdict:
        label, text = _WORDS[verdict]
        count = sum(finding.verdict is verdict for finding in report.findings)
        figures.append((label, str(count), text))
    return Headline(tuple(figures))


def _machine(machine: MachineFacts) -> Facts:
    items = [("GPUs", _gpus(machine))]
    if machine.driver or machine.cuda:
        cuda = f", CUDA {machine.cuda}" if machine.cuda else ""
        items.append(("driver", Cell(f"{machine.driver or 'not known'}{cuda}")))
    if machine.cpu:
        sockets = f"{machine.sockets} x " if machine.sockets and machine.sockets > 1 else ""
        nodes = f", {machine.numa_nodes} NUMA nodes" if machine.numa_nodes and machine.numa_nodes > 1 else ""
        items.append(("processor", Cell(f"{sockets}{machine.cpu}{nodes}")))
    memory = machine.memory_bytes
    if memory.value is not None:
        items.append(("memory", Cell(show_gib(memory.value), note=memory.source)))
    if machine.hypervisor:
        items.append(("virtual machine", Cell(f"{machine.hypervisor}: links, IOMMU and clocks are its host's")))
    if machine.kernel:
        items.append(("kernel", Cell(machine.kernel)))
    return Facts(tuple(items))


def _gpus(machine: MachineFacts) -> Cell:
    if not machine.gpus:
        return Cell(f"not known: {machine.gpus_note}", "muted")
    counts: dict[str, int] = {}
    for gpu in machine.gpus:
        memory = f", {show_gib(gpu.memory_bytes.value)}" if gpu.memory_bytes.value is not None else ""
        capability = f", compute capability {gpu.compute_capability}" if gpu.compute_capability else ""
        text = f"{gpu.name}{memory}{capability}"
        counts[text] = counts.get(text, 0) + 1
    return Cell("; ".join(f"{count}x {text}" for text, count in counts.items()))


def knob_table(findings: tuple[Finding, ...]) -> Table:
    """Knobs in groups by what to do about them."""
    columns = (
        Column("knob"),
        Column("found", least=24),
        Column("recommended", priority=2, least=16),
        Column("evidence", priority=3),
        Column("can cost", priority=1, least=18),
    )
    lines: list[Line] = []
    for verdict in Verdict:
        chosen = [finding for finding in findings if finding.verdict is verdict]
        if chosen:
            title = Cell(_WORDS[verdict][0], _TONES[verdict])
            lines.append(Line((title, *(Cell("") for _ in columns[1:])), "group"))
            lines += [_line(finding) for finding in chosen]
    return Table(columns, tuple(lines))


def _line(finding: Finding) -> Line:
    tone = _TONES[finding.verdict]
    where = "; ".join(finding.read_from)
    return Line(
        (
            Cell(f"{_SYMBOLS[finding.verdict]} {finding.knob}", tone, note=finding.why),
            Cell(finding.found, "muted" if finding.verdict is Verdict.NOT_KNOWN else "plain", note=where),
            Cell(finding.recommended),
            Cell(finding.evidence.value, _GAIN_TONES[finding.evidence], note=finding.source),
            Cell(_cost(finding.cost), note=_cost_source(finding.cost)),
        )
    )


def _cost(cost: Cost) -> str:
    """The number where there is one; else how far it reaches, which is a class and no number."""
    if cost.figure.value is None:
        return f"not known ({_REACH[cost.reach]})" if cost.reach in _REACH else cost.reach
    return f"{cost.figure.value:.3g}{'' if cost.unit.startswith('x') else ' '}{cost.unit}"


def _cost_in_full(cost: Cost) -> str:
    if cost.figure.value is None:
        return f"{cost.reach}; {_cost_source(cost)}"
    return f"{_cost(cost)}, which is {cost.reach} ({_cost_source(cost)})"


def _cost_source(cost: Cost) -> str:
    figure = cost.figure
    if figure.value is None:
        return f"not known: {figure.note}"
    return "; ".join(part for part in (figure.evidence.value, figure.source, figure.note) if part)


def _contradictions(findings: tuple[Finding, ...]) -> list[Block]:
    items = [Cell(f"{f.knob}: {text}", "warn") for f in findings for text in f.contradictions]
    if not items:
        return []
    return [Heading("What does not go together, or proves nothing"), Listing(tuple(items))]


def _to_run(findings: tuple[Finding, ...]) -> list[Block]:
    """The commands that would fill the gaps, each once."""
    commands = list(dict.fromkeys(f.command for f in findings if f.verdict is Verdict.NOT_KNOWN and f.command))
    if not commands:
        return []
    return [
        Heading("What to run on that machine to know the rest"),
        Code("\n".join(commands)),
        Paragraph("Each of them only reads. Their output in a folder is what --folder takes.", "muted"),
    ]


def _why(findings: tuple[Finding, ...]) -> list[Block]:
    """The reasons of what is to be done; those of the rest stand further down."""
    due = [finding for finding in findings if finding.verdict in (Verdict.CHANGE, Verdict.CHECK)]
    if not due:
        return []
    items = []
    for finding in due:
        more = f" To know more: {finding.command}" if finding.command else ""
        items.append(Cell(f"{finding.knob}: {finding.why}.{more}"))
    return [Heading("Why"), Listing(tuple(items))]


def _everything(findings: tuple[Finding, ...]) -> list[Block]:
    blocks: list[Block] = [Heading("Every knob with its sources")]
    for finding in findings:
        heading = f"{_SYMBOLS[finding.verdict]} {finding.knob}: {finding.verdict.value}"
        blocks.append(Paragraph(heading, _TONES[finding.verdict]))
        items = [
            ("found", Cell(finding.found)),
            ("read from", Cell("; ".join(finding.read_from) or "nowhere", "muted")),
            ("recommended", Cell(finding.recommended)),
            ("why", Cell(finding.why)),
            ("evidence", Cell(f"{finding.evidence.value}: {finding.source}")),
            ("can cost", Cell(_cost_in_full(finding.cost))),
        ]
        items += [("but", Cell(text, "warn")) for text in finding.contradictions]
        if finding.command:
            items.append(("to know more", Cell(finding.command)))
        blocks.append(Facts(tuple(items)))
    return blocks


def _cards(machine: MachineFacts) -> list[Block]:
    if not machine.gpus:
        return []
    columns = (
        Column("GPU", "right"),
        Column("bus", priority=2),
        Column("memory"),
        Column("PCIe"),
        Column("power W", "right"),
        Column("state", priority=1),
        Column("NUMA", "right"),
        Column("CPUs", priority=2),
    )
    return [Heading("The GPUs, as they were read"), Table(columns, tuple(_card(gpu) for gpu in machine.gpus))]


def _card(gpu: GpuFacts) -> Line:
    draw, limit = gpu.power_draw_w, gpu.power_limit_w
    power = (
        f"{_whole(draw.value)} of {_whole(limit.value)}" if draw.value is not None or limit.value is not None else "?"
    )
    use = "" if gpu.utilization.value is None else f"{gpu.utilization.value:.0f} %"
    generation = f"gen {_whole(gpu.pcie_gen_now.value)} of {_whole(gpu.pcie_gen_most.value)}"
    memory = gpu.memory_bytes
    return Line(
        (
            Cell(str(gpu.index), note=gpu.name),
            Cell(gpu.bus),
            Cell(show_gib(memory.value), note=memory.source)
            if memory.value is not None
            else Cell("?", note=memory.note),
            Cell(
                f"{generation}, x{_whole(gpu.pcie_width_now.value)}",
                note=gpu.pcie_gen_now.source or gpu.pcie_gen_now.note,
            ),
            Cell(power, note=limit.source or limit.note),
            Cell(" ".join(part for part in (gpu.pstate, use) if part)),
            Cell("" if gpu.numa_node is None else str(gpu.numa_node)),
            Cell(gpu.cpus),
        )
    )


def _whole(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _topology(title: str, topology: Topology | None) -> list[Block]:
    if topology is None or len(topology.gpus) < 2:
        return []
    columns = (Column(""), *(Column(name.removeprefix("GPU"), "right") for name in topology.gpus))
    lines = tuple(
        Line((Cell(name), *(Cell("" if path == "X" else path) for path in row)))
        for name, row in zip(topology.gpus, topology.paths, strict=True)
    )
    return [Heading(title), Table(columns, lines)]
