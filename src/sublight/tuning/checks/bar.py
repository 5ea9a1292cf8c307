"""Resizable BAR: how much of a card's memory the bus can address at once."""

from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, several, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict
from sublight.units import show_gib

BAR = Knob(
    "Resizable BAR",
    "at least the memory's size",
    "peers reach a card's memory through BAR1, and a firmware that leaves it at 256 MB cripples peer access",
    f"{RTX6K} hardware/pcie-bandwidth.md",
    Gain.PLAUSIBLE,
    unmeasured(
        "milliseconds a step", "where it stops peer access, that is the price; nobody measured a small one alone"
    ),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    known = [gpu for gpu in machine.gpus if gpu.bar1_bytes.value is not None and gpu.memory_bytes.value is not None]
    if not known:
        if machine.gpus and all(gpu.shares_memory for gpu in machine.gpus):
            return
        yield BAR.unread(readings, "nvidia-smi -q")
        return
    small = [gpu for gpu in known if gpu.bar1_bytes.known < gpu.memory_bytes.known]
    first = small[0] if small else known[0]
    sizes = f"BAR1 {show_gib(first.bar1_bytes.known)} for {show_gib(first.memory_bytes.known)}"
    where = several([gpu.index for gpu in small or known], len(machine.gpus))
    if not small:
        yield BAR.found(Verdict.FINE, f"{sizes} on {where}", first.bar1_bytes.source)
        return
    yield BAR.found(
        Verdict.CHANGE,
        f"{sizes} on {where}",
        first.bar1_bytes.source,
        command="Above 4G decoding and Resizable BAR in the firmware; nvidia-smi -q -d MEMORY afterwards",
    )


CHECK = Check("bar", ("nvidia-smi -q",), _judge)
