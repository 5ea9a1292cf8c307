"""One card as the driver describes it, put together from up to three outputs that describe it."""

import msgspec

from sublight.errors import SublightError
from sublight.records import Evidence, Figure, not_known
from sublight.tuning.parsers import lspci, matrix, nvidia_csv, nvidia_q, nvidia_table
from sublight.tuning.parsers.values import number
from sublight.tuning.readings import Readings

MIB = 2**20
_DRAW = ("Instantaneous Power Draw", "Average Power Draw", "Power Draw")
FULL_SPEED = ("P0", "P1", "P2")
_LINK = "PCI/GPU Link Info"
_WIDTH = f"{_LINK}/Link Width/Current"
_GENERATION = f"{_LINK}/PCIe Generation/Current"
_Q, _CSV, _TABLE = "nvidia-smi -q", "nvidia-smi --query-gpu", "nvidia-smi"


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
        generation_at_rest, width_at_rest: whether it was read with nothing to do, perhaps in another output than the
            power.
        numa_node: None where it was not printed.
        numa_clash: how two outputs differ on the node; "" where they do not.
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
    generation_at_rest: bool = False
    width_at_rest: bool = False
    numa_node: int | None = None
    numa_clash: str = ""
    cpus: str = ""

    @property
    def idle(self) -> bool:
        """Whether the reading was taken with nothing to do: clocks and the link are then slow on purpose."""
        return not self.busy and self.pstate not in FULL_SPEED

    @property
    def busy(self) -> bool:
        """Whether a kernel ran when it was read."""
        return self.utilization.value is not None and self.utilization.value > 0


class Card:
    """One card in up to three outputs, which can be of different times: one under load, another at rest."""

    def __init__(
        self,
        index: int,
        placed: bool,
        bus: str,
        section: nvidia_q.Section | None,
        row: nvidia_csv.Row | None,
        card: nvidia_table.Card | None,
        readings: Readings,
    ) -> None:
        """`placed`: whether the index is nvidia-smi's own, under which other outputs speak of the card."""
        self.index, self.placed, self.bus = index, placed, bus
        self.section, self.row, self.card, self.readings = section, row, card, readings
        self._pstates = {
            _Q: section.text("Performance State") if section else "",
            _CSV: row.text("pstate") if row else "",
            _TABLE: card.pstate if card else "",
        }
        self._use = {
            _Q: section.utilization if section else -1.0,
            _CSV: _or_less(row.number("utilization") if row else None),
            _TABLE: _or_less(card.utilization if card else None),
        }
        self._live = self._busiest(tuple(self._use))
        self._generation = self._of_link(_GENERATION, "gen.current")
        self._width = self._of_link(_WIDTH, "width.current")

    def _of_link(self, path: str, column: str) -> tuple[str, ...]:
        """Generation and width need not be from the output that tells the power, and each can be from its own."""
        in_section = self.section is not None and self.section.number(path) is not None
        in_row = self.row is not None and self.row.number(column) is not None
        return self._busiest((*((_Q,) if in_section else ()), *((_CSV,) if in_row else ())))

    def facts(self, topology: matrix.Matrix | None, pci: lspci.Pci | None) -> GpuFacts:
        rows = topology.gpus if topology and self.placed else ()
        place = next((row for row in rows if row.name == f"GPU{self.index}"), None)
        device = pci.gpu_at(self.bus) if pci else None
        name = self._text("Product Name", "name") or (self.card.name if self.card else "")
        catalogue, known_capability = _in_catalogue(name)
        capability = self._text("", "compute_cap")
        source = self.readings.where("nvidia-smi --query-gpu") if capability else ""
        if not capability and known_capability:
            capability, source = known_capability, f"the catalogue's entry for {catalogue}"
        card = self.card
        limit, draw, use = (card.limit_w, card.power_w, card.utilization) if card else (None, None, None)
        memory = card.memory_mib if card else None
        return GpuFacts(
            index=self.index,
            name=name or "a card without a name",
            bus=self.bus,
            catalogue=catalogue,
            compute_capability=capability,
            compute_capability_source=source,
            pstate=next((self._pstates[source] for source in self._live if self._pstates[source]), ""),
            memory_bytes=self._figure(("FB Memory Usage/Total",), "memory.total", memory, MIB),
            shares_memory=self._says_no_memory(),
            bar1_bytes=self._figure(("BAR1 Memory Usage/Total",), "", None, MIB),
            power_limit_w=self._figure(_power("Current Power Limit", "Power Limit"), "power.limit", limit),
            power_default_w=self._figure(_power("Default Power Limit"), "", None),
            power_draw_w=self._figure(_power(*_DRAW), "power.draw", draw, taken=self._live),
            utilization=self._figure(("Utilization/GPU", "Utilization/Gpu"), "utilization", use, taken=self._live),
            pcie_gen_now=self._figure((_GENERATION,), "gen.current", None, taken=self._generation),
            pcie_gen_most=self._figure((f"{_LINK}/PCIe Generation/Max",), "gen.max", None),
            pcie_width_now=self._figure((_WIDTH,), "width.current", None, taken=self._width),
            pcie_width_most=self._figure((f"{_LINK}/Link Width/Max",), "width.max", None),
            generation_at_rest=self._at_rest(self._generation),
            width_at_rest=self._at_rest(self._width),
            numa_node=_node(place, device),
            numa_clash=self._clash(place, device),
            cpus=place.cpus if place else "",
        )  # fmt: skip

    def _at_rest(self, taken: tuple[str, ...]) -> bool:
        return bool(taken) and self._use[taken[0]] <= 0 and self._pstates[taken[0]] not in FULL_SPEED

    def _says_no_memory(self) -> bool:
        field = self.section.get("FB Memory Usage/Total") if self.section else None
        said = [field.text] if field else []
        if self.row and "memory.total" in self.row.values:
            said.append(self.row.values["memory.total"])
        return bool(said) and not any(number(text) for text in said)

    def _text(self, path: str, column: str) -> str:
        found = self.section.text(path) if self.section and path else ""
        return found or (self.row.text(column) if self.row else "")

    def _busiest(self, outputs: tuple[str, ...]) -> tuple[str, ...]:
        """Of these outputs the one in which the card had most to do, and those that are like it.

        Power of one moment and utilisation of another say nothing together.
        """
        use = self._use
        order = sorted(outputs, key=lambda source: -use[source])  # of two alike, the one that says more
        return tuple(source for source in order if use[source] < 0 or (use[source] > 0) == (use[order[0]] > 0))

    def _figure(
        self,
        paths: tuple[str, ...],
        column: str,
        printed: float | None,
        scale: float = 1.0,
        taken: tuple[str, ...] = (),
    ) -> Figure:
        """A number from the first output that has one, or why none has. `taken`: the outputs that may be used."""
        field = self.section.get(*paths) if self.section else None
        said = {
            _Q: (field.number, field.line) if field else (None, 0),
            _CSV: (self.row.number(column), self.row.line) if self.row else (None, 0),
            _TABLE: (printed, self.card.line) if self.card else (None, 0),
        }
        for source in taken or said:
            value, line = said[source]
            if value is not None:
                return Figure(value * scale, Evidence.MEASURED, self.readings.where(source, line))
        if taken and any(value is not None for value, _ in said.values()):
            return not_known(f"{self.readings[taken[0]].label} does not say, and the others were read at rest")
        if field is not None:
            return not_known(f"the driver says {field.text!r} ({self.readings.where(_Q, field.line)})")
        if self.row is not None and column in self.row.values:
            text = self.row.values[column]
            return not_known(f"the driver says {text!r} ({self.readings.where(_CSV, self.row.line)})")
        return not_known(self.readings.missing(_Q) or "it was not printed")

    def _clash(self, place: matrix.Row | None, device: lspci.Device | None) -> str:
        if place is None or device is None or None in (place.numa, device.numa) or place.numa == device.numa:
            return ""
        return (
            f"GPU {self.index}: the matrix says node {place.numa} "
            f"({self.readings.where('nvidia-smi topo -m', place.line)}), the PCI listing node {device.numa} "
            f"({self.readings.where('lspci -vvv', device.line)})"
        )


def _node(place: matrix.Row | None, device: lspci.Device | None) -> int | None:
    """By the card's address where that says it, else by its index."""
    if device is not None and device.numa is not None:
        return device.numa
    return place.numa if place else None


def _or_less(utilization: float | None) -> float:
    return -1.0 if utilization is None else utilization


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
