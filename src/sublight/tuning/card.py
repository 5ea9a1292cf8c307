"""One card as the driver describes it, put together from up to three outputs that describe it."""

import msgspec

from sublight.errors import SublightError
from sublight.records import Evidence, Figure, not_known
from sublight.tuning.parsers import matrix, nvidia_csv, nvidia_q, nvidia_table
from sublight.tuning.parsers.values import number
from sublight.tuning.readings import Readings

MIB = 2**20


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One card as the driver describes it.

    Attributes:
        bus: "00000000:06:00.0"; "" where it was not printed.
        catalogue: the name under which Sublight knows the card, "" where it does not.
        compute_capability: "12.0"; "" where it is not known. `compute_capability_source` says how it is.
        pstate: "P8"; P0 is full speed.
        utilization: percent of the last sample in which a kernel was there.
        shares_memory: whether the driver, asked for the card's memory, said that there is no such number: so do parts
            that use the memory of the processor.
        numa_node: None where it was not printed.
    """

    index: int
    name: str
    bus: str = ""
    catalogue: str = ""
    compute_capability: str = ""
    compute_capability_source: str = ""
    pstate: str = ""
    memory_bytes: Figure
    shares_memory: bool = False
    bar1_bytes: Figure
    power_limit_w: Figure
    power_default_w: Figure
    power_draw_w: Figure
    utilization: Figure
    pcie_gen_now: Figure
    pcie_gen_most: Figure
    pcie_width_now: Figure
    pcie_width_most: Figure
    numa_node: int | None = None
    cpus: str = ""

    @property
    def idle(self) -> bool:
        """Whether the reading was taken with nothing to do: clocks and the link are then slow on purpose."""
        return not self.busy and self.pstate not in ("P0", "P1", "P2")

    @property
    def busy(self) -> bool:
        """Whether a kernel ran when it was read."""
        return self.utilization.value is not None and self.utilization.value > 0


class Card:
    """One card in up to three outputs."""

    def __init__(
        self,
        index: int,
        section: nvidia_q.Section | None,
        row: nvidia_csv.Row | None,
        card: nvidia_table.Card | None,
        readings: Readings,
    ) -> None:
        self.index, self.section, self.row, self.card, self.readings = index, section, row, card, readings
        self.bus = section.bus if section else card.bus if card else ""

    def facts(self, place: matrix.Row | None, pci_numa: int | None) -> GpuFacts:
        name = self._text("Product Name", "name") or (self.card.name if self.card else "")
        catalogue, known_capability = _in_catalogue(name)
        capability = self._text("", "compute_cap")
        source = self.readings.where("nvidia-smi --query-gpu") if capability else ""
        if not capability and known_capability:
            capability, source = known_capability, f"the catalogue's entry for {catalogue}"
        card = self.card
        link = "PCI/GPU Link Info"
        limit, draw, use = (card.limit_w, card.power_w, card.utilization) if card else (None, None, None)
        memory = card.memory_mib if card else None
        return GpuFacts(
            index=self.index,
            name=name or "a card without a name",
            bus=self.bus,
            catalogue=catalogue,
            compute_capability=capability,
            compute_capability_source=source,
            pstate=self._text("Performance State", "pstate") or (card.pstate if card else ""),
            memory_bytes=self._figure(("FB Memory Usage/Total",), "memory.total", memory, MIB),
            shares_memory=self._says_no_memory(),
            bar1_bytes=self._figure(("BAR1 Memory Usage/Total",), "", None, MIB),
            power_limit_w=self._figure(_power("Current Power Limit", "Power Limit"), "power.limit", limit),
            power_default_w=self._figure(_power("Default Power Limit"), "", None),
            power_draw_w=self._figure(
                _power("Instantaneous Power Draw", "Average Power Draw", "Power Draw"), "power.draw", draw
            ),
            utilization=self._figure(("Utilization/GPU", "Utilization/Gpu"), "utilization", use),
            pcie_gen_now=self._figure((f"{link}/PCIe Generation/Current",), "gen.current", None),
            pcie_gen_most=self._figure((f"{link}/PCIe Generation/Max",), "gen.max", None),
            pcie_width_now=self._figure((f"{link}/Link Width/Current",), "width.current", None),
            pcie_width_most=self._figure((f"{link}/Link Width/Max",), "width.max", None),
            numa_node=place.numa if place and place.numa is not None else pci_numa,
            cpus=place.cpus if place else "",
        )  # fmt: skip

    def _says_no_memory(self) -> bool:
        field = self.section.get("FB Memory Usage/Total") if self.section else None
        said = [field.text] if field else []
        if self.row and "memory.total" in self.row.values:
            said.append(self.row.values["memory.total"])
        return bool(said) and not any(number(text) for text in said)

    def _text(self, path: str, column: str) -> str:
        found = self.section.text(path) if self.section and path else ""
        return found or (self.row.text(column) if self.row else "")

    def _figure(self, paths: tuple[str, ...], column: str, printed: float | None, scale: float = 1.0) -> Figure:
        """A number from the first output that has one, or why none has."""
        field = self.section.get(*paths) if self.section else None
        if field is not None and field.number is not None:
            return Figure(field.number * scale, Evidence.MEASURED, self.readings.where("nvidia-smi -q", field.line))
        if self.row is not None and column and (value := self.row.number(column)) is not None:
            return Figure(
                value * scale, Evidence.MEASURED, self.readings.where("nvidia-smi --query-gpu", self.row.line)
            )
        if printed is not None and self.card is not None:
            return Figure(printed * scale, Evidence.MEASURED, self.readings.where("nvidia-smi", self.card.line))
        if field is not None:
            return not_known(f"the driver says {field.text!r} ({self.readings.where('nvidia-smi -q', field.line)})")
        if self.row is not None and column in self.row.values:
            said = self.row.values[column]
            return not_known(
                f"the driver says {said!r} ({self.readings.where('nvidia-smi --query-gpu', self.row.line)})"
            )
        return not_known(self.readings.missing("nvidia-smi -q") or "it was not printed")


def _power(*names: str) -> tuple[str, ...]:
    return tuple(f"{section}/{name}" for section in ("GPU Power Readings", "Power Readings") for name in names)


def _in_catalogue(name: str) -> tuple[str, str]:
    """The catalogue's name of a card and its compute capability; empty where no entry has exactly this name."""
    from sublight.facts.gpu import parse_gpus

    if not name:
        return "", ""
    try:
        _, gpu = parse_gpus(name)
    except SublightError:
        return "", ""
    digits = gpu.target.removeprefix("sm_")
    return gpu.name, f"{digits[:-1]}.{digits[-1]}" if digits.isdecimal() else ""
