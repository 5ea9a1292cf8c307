"""PCIe links: width and generation of each card's own link, and of every bridge between it and the processor."""

from collections.abc import Iterator

from sublight.records import Evidence, Figure
from sublight.tuning.card import GpuFacts
from sublight.tuning.checks.base import NVIDIA_SMI, RTX6K, Check, Knob, costs, several, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import lspci, nvidia_q
from sublight.tuning.readings import Readings
from sublight.tuning.record import Cost, Finding, Gain, Verdict

_MEASURED = f"{RTX6K} hardware/asus-esc8000a-e13p-broadcom-switches.md"
_OF_A_CARD = "x bandwidth of the card"
UNDER_LOAD = (
    "nvidia-smi --query-gpu=index,pstate,utilization.gpu,pcie.link.gen.current,pcie.link.width.current --format=csv"
    "  # while it decodes"
)

_X4 = costs(
    "milliseconds a step",
    95 / 27.2,
    "x bandwidth of a pair at x4",
    _MEASURED,
    "27.2 GB/s where 95 were expected",
)

WIDTH = Knob(
    "PCIe width of the GPUs",
    "all lanes, under load",
    "bandwidth goes with the number of lanes; a slot with half of them, a riser or a dirty contact shows here",
    f"{NVIDIA_SMI}; {_MEASURED}",
    Gain.MEASURED,
    _X4,
)
GENERATION = Knob(
    "PCIe generation of the GPUs",
    "the highest, under load",
    "each generation doubles the rate. Drivers slow the link of an idle card, so only a reading under load counts",
    NVIDIA_SMI,
    Gain.PLAUSIBLE,
    unmeasured("milliseconds a step", "nobody published a decode step at a lower generation"),
)
ABOVE = Knob(
    "PCIe links above the GPUs",
    "full width and speed",
    "a switch's way up, or a root port that the firmware gave four lanes, narrows all traffic that leaves the switch",
    _MEASURED,
    Gain.MEASURED,
    _X4,
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    gpus = [gpu for gpu in machine.gpus if gpu.pcie_width_now.value]  # none has no lanes
    if not gpus:
        yield WIDTH.unread(readings, "nvidia-smi -q")
        told = [gpu for gpu in machine.gpus if gpu.pcie_gen_now.value and gpu.pcie_width_now.value is None]
        yield _generation(readings, machine, told) if told else GENERATION.unread(readings, "nvidia-smi -q")
    elif all(gpu.shares_memory for gpu in machine.gpus):
        found = f"{_speeds(gpus)}; these cards share the memory of the processor"
        why = "no weight, cache or message crosses this link where the memory is shared"
        yield WIDTH.found(Verdict.FINE, found, gpus[0].pcie_width_now.source, recommended="anything", why=why)
    else:
        yield _width(readings, machine, gpus)
        yield _generation(readings, machine, gpus)
    yield from _above(readings, machine)


def _width(readings: Readings, machine: MachineFacts, gpus: list[GpuFacts]) -> Finding:
    narrow = [gpu for gpu in gpus if _less(gpu.pcie_width_now.value, gpu.pcie_width_most.value)]
    clashes = tuple(_disagreements(readings, gpus))
    if not narrow:
        return WIDTH.found(
            Verdict.CHECK if clashes else Verdict.FINE,
            f"x{gpus[0].pcie_width_now.known:.0f} on {several([gpu.index for gpu in gpus], len(machine.gpus))}"
            if len({gpu.pcie_width_now.value for gpu in gpus}) == 1
            else _speeds(gpus),
            gpus[0].pcie_width_now.source,
            contradictions=clashes,
        )
    worst = min(narrow, key=lambda gpu: gpu.pcie_width_now.known)
    idle = [gpu for gpu in narrow if gpu.width_at_rest]
    lost = worst.pcie_width_most.known / worst.pcie_width_now.known
    said = f"x{worst.pcie_width_now.known:.0f} of x{worst.pcie_width_most.known:.0f}"
    if idle:
        clashes += ("lanes can be given up by an idle card as well: an idle reading of the width is a hint, no proof",)
    return WIDTH.found(
        Verdict.CHECK if len(idle) == len(narrow) else Verdict.CHANGE,
        f"{said} on {several([gpu.index for gpu in narrow], len(machine.gpus))}",
        worst.pcie_width_now.source,
        contradictions=clashes,
        command=UNDER_LOAD,
        cost=Cost("milliseconds a step", Figure(lost, Evidence.COMPUTED, "lanes it has over lanes in use"), _OF_A_CARD),
    )


def _generation(readings: Readings, machine: MachineFacts, gpus: list[GpuFacts]) -> Finding:
    slow = [gpu for gpu in gpus if _less(gpu.pcie_gen_now.value, gpu.pcie_gen_most.value)]
    slots = _slower_slots(readings, machine, gpus)
    if not slow:
        known = [gpu for gpu in gpus if gpu.pcie_gen_now.value is not None]
        if not known:
            return GENERATION.found(Verdict.NOT_KNOWN, gpus[0].pcie_gen_now.note, command=UNDER_LOAD)
        lowest = min(gpu.pcie_gen_now.known for gpu in known)
        found = f"gen {lowest:.0f} on {several([gpu.index for gpu in known], len(machine.gpus))}"
        verdict = Verdict.CHECK if slots else Verdict.FINE
        return GENERATION.found(verdict, found + slots, known[0].pcie_gen_now.source)
    worst = min(slow, key=lambda gpu: gpu.pcie_gen_now.known)
    said = f"gen {worst.pcie_gen_now.known:.0f} of {worst.pcie_gen_most.known:.0f}"
    where = several([gpu.index for gpu in slow], len(machine.gpus))
    idle = [gpu for gpu in slow if gpu.generation_at_rest]
    if len(idle) < len(slow):
        busy = [gpu.index for gpu in slow if not gpu.generation_at_rest]
        found = f"{said} on {where}, " + (
            "read while not idle" if len(busy) == len(slow) else f"not idle: {', '.join(map(str, busy))}"
        )
        return GENERATION.found(Verdict.CHANGE, found + slots, worst.pcie_gen_now.source, command=UNDER_LOAD)
    state = f"{worst.pstate}, " if worst.pstate and worst.idle else ""
    return GENERATION.found(
        Verdict.CHECK,
        f"{said} on {where}, read while idle{slots}",
        worst.pcie_gen_now.source,
        contradictions=(
            f"the cards were idle ({state}no kernel running): the driver slows the link then, and this reading proves "
            "nothing either way",
        ),
        command=UNDER_LOAD,
    )


def _slower_slots(readings: Readings, machine: MachineFacts, gpus: list[GpuFacts]) -> str:
    """Cards that could do more than their slots: the driver's highest generation is that of the two together."""
    log: nvidia_q.QueryLog | None = readings.parsed("nvidia-smi -q")
    path = "PCI/GPU Link Info/PCIe Generation/Device Max"
    own = {section.bus: section.number(path) for section in log.gpus} if log else {}
    held = [gpu for gpu in gpus if _less(gpu.pcie_gen_most.value, own.get(gpu.bus))]
    if not held:
        return ""
    card, slot = own[held[0].bus], held[0].pcie_gen_most.known
    where = several([gpu.index for gpu in held], len(machine.gpus))
    return f"; the card can do gen {card:.0f}, its slot gen {slot:.0f}: {where}"


def _above(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    pci: lspci.Pci | None = readings.parsed("lspci -vvv")
    bridges = pci.above_gpus if pci else ()
    if pci is None or not bridges:
        if pci is None or not machine.hypervisor:
            reason = "" if pci is None else "the listing shows no bridge above a GPU"
            yield ABOVE.unread(readings, "lspci -vvv", reason=reason)
        return
    linked = [bridge for bridge in bridges if bridge.link_can and bridge.link_now]
    if not linked:
        yield ABOVE.unread(readings, "lspci -vvv", reason="lspci was not run as root: capabilities are <access denied>")
        return
    narrow = [b for b in linked if b.link_can and b.link_now and b.link_now.width < b.link_can.width]
    # The port right above a card slows down with the card's link; everything higher up does not.
    nearest = {above[0].address for gpu in pci.gpus if (above := pci.above(gpu))}
    slow = [
        b for b in linked
        if b.address not in nearest and b.link_can and b.link_now and b.link_now.speed_gts < b.link_can.speed_gts
    ]  # fmt: skip
    bad = [bridge for bridge in linked if bridge in narrow or bridge in slow]
    if not bad:
        link = linked[0].link_now
        slowed = [b for b in linked if b.link_now and b.link_can and b.link_now.speed_gts < b.link_can.speed_gts]
        found = f"full width on all {len(linked)} bridges, full speed on "
        found += f"all but the {len(slowed)} ports that slow down with their cards" if slowed else "all of them"
        yield ABOVE.found(Verdict.FINE, found, readings.where("lspci -vvv", link.line if link else 0))
        return
    listed = ", ".join(
        f"{b.address} x{b.link_now.width} at {b.link_now.speed_gts:g} GT/s of x{b.link_can.width} at "
        f"{b.link_can.speed_gts:g}"
        for b in bad[:4]
        if b.link_now and b.link_can
    )
    more = f" and {len(bad) - 4} more" if len(bad) > 4 else ""
    yield ABOVE.found(
        Verdict.CHANGE if narrow else Verdict.CHECK,
        f"{len(bad)} of {len(linked)} bridges below what they can: {listed}{more}",
        *(readings.where("lspci -vvv", b.link_now.line) for b in bad[:3] if b.link_now),
        why="A port can be wired with fewer lanes than it has: the board's manual decides",
        command="sudo lspci -vvv under load; lane settings (bifurcation) in the firmware",
    )


def _disagreements(readings: Readings, gpus: list[GpuFacts]) -> Iterator[str]:
    """Cards whose width the driver and the PCI listing tell differently."""
    pci: lspci.Pci | None = readings.parsed("lspci -vvv")
    for gpu in gpus:
        device = pci.gpu_at(gpu.bus) if pci else None
        if device and device.link_now and device.link_now.width != gpu.pcie_width_now.value:
            yield (
                f"GPU {gpu.index}: the driver says x{gpu.pcie_width_now.known:.0f} ({gpu.pcie_width_now.source}), "
                f"the PCI listing x{device.link_now.width} ({readings.where('lspci -vvv', device.link_now.line)})"
            )


def _less(now: float | None, most: float | None) -> bool:
    return now is not None and most is not None and now < most


def _speeds(gpus: list[GpuFacts]) -> str:
    return ", ".join(
        f"GPU {gpu.index} x{gpu.pcie_width_now.known:.0f}"
        + (f" gen {gpu.pcie_gen_now.value:.0f}" if gpu.pcie_gen_now.value is not None else "")
        for gpu in gpus
    )


CHECK = Check("link", ("nvidia-smi -q", "nvidia-smi --query-gpu", "lspci -vvv"), _judge)
