"""MachineFacts: the cards, their driver, how they are joined, and the processors beside them, as a machine printed it.

A number that was not printed is `not_known` with the reason. Nothing is looked up to fill a hole but the compute
capability of a card that the catalogue knows by its exact name, and that says so.
"""

import msgspec

from sublight.records import Evidence, Figure, not_known
from sublight.tuning.card import GpuFacts
from sublight.tuning.cards import cards
from sublight.tuning.parsers import lspci, matrix, nvidia_q, nvidia_table, system
from sublight.tuning.readings import Readings


class Topology(msgspec.Struct, frozen=True):
    """The matrix of `nvidia-smi topo -m`, GPUs alone: SYS, NODE, PHB, PXB, PIX or NV#, "X" on the diagonal."""

    gpus: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if {len(self.gpus)} != {len(self.paths), *map(len, self.paths)}:
            raise ValueError(f"a matrix of {len(self.gpus)} GPUs has a path from each to each")


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine consists of. An empty text was not printed; `gpus_note` says why there are no cards."""

    gpus: tuple[GpuFacts, ...]
    gpus_note: str = ""
    driver: str = ""
    cuda: str = ""
    topology: Topology | None = None
    peer_access: Topology | None = None  # of `topo -p2p r`: OK, CNS, GNS, TNS, NS
    cpu: str = ""
    sockets: int | None = None
    numa_nodes: int | None = None
    hypervisor: str = ""
    kernel: str = ""
    memory_bytes: Figure

    @property
    def nvlink(self) -> bool | None:
        """Whether every pair is joined by NVLink; None where that is not known or there is one card."""
        if self.topology is None or len(self.topology.gpus) < 2:
            return None
        return all(path.startswith(("NV", "X")) for row in self.topology.paths for path in row)


def machine_facts(readings: Readings) -> MachineFacts:
    """Everything that can be said of the machine, from whichever source says it best."""
    log: nvidia_q.QueryLog | None = readings.parsed("nvidia-smi -q")
    table: nvidia_table.Table | None = readings.parsed("nvidia-smi")
    topology: matrix.Matrix | None = readings.parsed("nvidia-smi topo -m")
    peers: matrix.Matrix | None = readings.parsed("nvidia-smi topo -p2p r")
    pci: lspci.Pci | None = readings.parsed("lspci -vvv")
    cpu: system.Cpu | None = readings.parsed("lscpu")
    numa: system.Numa | None = readings.parsed("numactl -H")
    gpus = tuple(card.facts(topology, pci) for card in cards(readings))
    return MachineFacts(
        gpus=gpus,
        gpus_note="" if gpus else readings.missing("nvidia-smi -q", "nvidia-smi") or "no card is listed",
        driver=(log.head.text("Driver Version") if log else "") or (table.driver if table else ""),
        cuda=(log.head.text("CUDA Version") if log else "") or (table.cuda if table else ""),
        topology=_between_gpus(topology),
        peer_access=_between_gpus(peers),
        cpu=cpu.text("Model name") if cpu else "",
        sockets=cpu.sockets if cpu else None,
        numa_nodes=len(numa.nodes) if numa else (len(cpu.nodes) or None) if cpu else None,
        hypervisor=cpu.text("Hypervisor vendor") if cpu else "",
        kernel=_kernel(readings),
        memory_bytes=_system_memory(readings),
    )


def _between_gpus(found: matrix.Matrix | None) -> Topology | None:
    if found is None or not found.gpus or not found.is_whole:
        return None
    places = [place for place, name in enumerate(found.devices) if name.startswith("GPU")]
    names = tuple(found.devices[place] for place in places)
    return Topology(names, tuple(tuple(row.cells[place] for place in places) for row in found.gpus))


def _kernel(readings: Readings) -> str:
    release: str | None = readings.parsed("uname -sr")
    if release:
        return release
    parameters: dict[str, list[str]] = readings.parsed("/proc/cmdline") or {}
    image = next(iter(parameters.get("BOOT_IMAGE", [])), "")
    return image.rpartition("vmlinuz-")[2] if "vmlinuz-" in image else ""


def _system_memory(readings: Readings) -> Figure:
    values: dict[str, system.Value] | None = readings.parsed("/proc/meminfo")
    size = system.kib(values, "MemTotal") if values else None
    if size is not None:
        return Figure(float(size), Evidence.MEASURED, readings.where("/proc/meminfo"))
    numa: system.Numa | None = readings.parsed("numactl -H")
    if numa and numa.sizes_bytes:
        return Figure(float(sum(numa.sizes_bytes.values())), Evidence.MEASURED, readings.where("numactl -H"))
    return not_known(readings.missing("/proc/meminfo") or "/proc/meminfo names no MemTotal")
