"""PCIe switches below an AMD processor: a pattern of writes that collapses, whatever is set."""

from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, costs
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import lspci
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

_MEASURED = f"{RTX6K} hardware/collapse-report.md"

WRITES = Knob(
    "writes to several roots",
    "NCCL's ring between switches",
    "where cards of one switch write to cards behind two or more other root ports of an AMD processor at once, writes "
    "fell from 52.5 to 13.5 GB/s, and behind Broadcom PEX890xx to 2.7; reads and single flows did not. No kernel, "
    "driver or firmware setting cured it: a ring does not do it, trees, all-to-all and one-shot all-reduces over all "
    "switches do. Full translation by the IOMMU hides it, and costs 15 % and hangs",
    f"{_MEASURED}; {RTX6K} hardware/wrx90-cpayne-microchip-switches.md",
    Gain.MEASURED,
    costs("milliseconds a step", 52.5 / 13.5, "x bandwidth of such writes", _MEASURED, "two destination roots"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    pci: lspci.Pci | None = readings.parsed("lspci -vvv")
    if pci is None or "AMD" not in machine.cpu:
        return
    cards: dict[str, int] = {}  # the way up of a switch -> cards below it
    roots: set[str] = set()
    titles: dict[str, None] = {}
    for gpu in pci.gpus:
        above = pci.above(gpu)
        if above:
            roots.add(above[-1].address)
        if len(above) >= 3:  # a port of the switch, its way up, and the root port
            cards[above[1].address] = cards.get(above[1].address, 0) + 1
            titles.setdefault(above[1].title.partition(" (")[0])
    sharing = [address for address, count in cards.items() if count > 1]
    if not sharing:
        return
    first = next(device for device in pci.devices if device.address == sharing[0])
    found = (
        f"{len(cards)} switches ({', '.join(titles)}) below {len(roots)} root ports, {max(cards.values())} GPUs each"
    )
    where = readings.where("lspci -vvv", first.line)
    if len(roots) < 3:
        # The pattern needs a source switch and two other roots.
        yield WRITES.found(Verdict.FINE, found, where)
        return
    yield WRITES.found(
        Verdict.CHECK,
        found,
        where,
        command="p2pmark (github.com/lukealonso/p2pmark): staggered writes by distance, and all to all",
    )


CHECK = Check("switches", ("lspci -vvv", "lscpu"), _judge)
