"""Which processor each card hangs on, whether the listings agree on it, and whether the kernel moves pages about."""

from collections.abc import Iterator

from sublight.tuning.checks.base import KERNEL_DOCS, RTX6K, Check, Knob, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import system
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

PLACEMENT = Knob(
    "NUMA placement",
    "ranks bound to their card's node",
    "launches and staged copies cross the link between sockets otherwise: numactl --cpunodebind=N --membind=N, or the "
    "engine's own option",
    f"{RTX6K} optimization/nccl-tuning.md; docs.sglang.io",
    Gain.PLAUSIBLE,
    unmeasured("percents of a step", "campaigns report marginal or zero gain once decoding runs in a CUDA graph"),
)
BALANCING = Knob(
    "NUMA balancing",
    "0",
    "the kernel unmaps pages to see who uses them, and the faults land on whoever launches kernels; its documentation "
    "says to turn it off where work is bound to nodes already",
    f"{KERNEL_DOCS}/admin-guide/sysctl/kernel.html",
    Gain.PLAUSIBLE,
    unmeasured("percents of a step", "nobody published a decode step with and without it"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    yield _placement(readings, machine)
    found = readings.file("/proc/sys/kernel/numa_balancing")
    if machine.numa_nodes == 1:
        value = f"{found[0].text}, and " if found else ""
        where = found[1] if found else readings.where("numactl -H" if readings["numactl -H"].text else "lscpu")
        yield BALANCING.found(Verdict.FINE, f"{value}one node: nothing to balance", where)
    elif found is None:
        yield BALANCING.unread(readings, "kernel settings")
    elif found[0].text.strip() == "0":
        yield BALANCING.found(Verdict.FINE, "0 (off)", found[1])
    else:
        yield BALANCING.found(Verdict.CHECK, f"{found[0].text.strip()} (on)", found[1])


def _placement(readings: Readings, machine: MachineFacts) -> Finding:
    sources = ("nvidia-smi topo -m", "lscpu", "numactl -H")
    if machine.numa_nodes == 1:
        where = readings.where("numactl -H" if readings["numactl -H"].text else "lscpu")
        return PLACEMENT.found(Verdict.FINE, "one NUMA node: nothing to place", where)
    nodes: dict[int, list[int]] = {}
    for gpu in machine.gpus:
        if gpu.numa_node is not None and gpu.numa_node >= 0:
            nodes.setdefault(gpu.numa_node, []).append(gpu.index)
    if not nodes:
        return PLACEMENT.unread(readings, *sources)
    numa: system.Numa | None = readings.parsed("numactl -H")
    farthest = max(numa.distances.values(), default=0) if numa else 0
    listed = "; ".join(f"node {node}: GPU {', '.join(map(str, gpus))}" for node, gpus in sorted(nodes.items()))
    apart = f"; distance {farthest} against 10" if farthest else ""
    return PLACEMENT.found(
        Verdict.CHECK,
        listed + apart,
        readings.where("nvidia-smi topo -m") if readings["nvidia-smi topo -m"].text else readings.where("lspci -vvv"),
        readings.where("numactl -H", numa.line) if numa else "",
        contradictions=tuple(_disagreements(readings, machine)),
        why="Where processes run is theirs to say: this shows where they should",
        command="numactl --show inside each rank, or taskset -cp PID",
    )


def _disagreements(readings: Readings, machine: MachineFacts) -> Iterator[str]:
    """CPUs of a node that are off, and cards whose node or list of CPUs two outputs tell differently."""
    yield from (gpu.numa_clash for gpu in machine.gpus if gpu.numa_clash)
    cpu: system.Cpu | None = readings.parsed("lscpu")
    if cpu is None:
        return
    offline = cpu.text("Off-line CPU(s) list")
    if offline:
        where = readings.where("lscpu", cpu.line("Off-line CPU(s) list"))
        yield f"CPU {offline} is off-line ({where}): lists of CPUs that tools print may end there"
    differing: dict[tuple[int, str], list[int]] = {}
    for gpu in machine.gpus:
        of_node = cpu.nodes.get(gpu.numa_node) if gpu.numa_node is not None else None
        if gpu.cpus and of_node and system.ranges(gpu.cpus) != system.ranges(of_node):
            differing.setdefault((gpu.numa_node or 0, gpu.cpus), []).append(gpu.index)
    for (node, cpus), gpus in differing.items():
        missing = sorted(system.ranges(cpu.nodes[node]) - system.ranges(cpus))
        yield (
            f"GPU {', '.join(map(str, gpus))}: nvidia-smi names CPUs {cpus}, and node {node} has {cpu.nodes[node]} "
            f"({readings.where('lscpu', cpu.line(f'NUMA node{node} CPU(s)'))}): "
            + (f"{len(missing)} CPUs of the node are left out" if missing else "they are not the same CPUs")
        )


CHECK = Check("numa", ("nvidia-smi topo -m", "lspci -vvv", "lscpu", "numactl -H", "kernel settings"), _judge)
