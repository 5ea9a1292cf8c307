"""How much memory a card has, where the driver does not say: parts that share the memory of the processor."""

from collections.abc import Iterator

from sublight.records import not_known
from sublight.tuning.card import GpuFacts
from sublight.tuning.checks.base import Check, Knob
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import system
from sublight.tuning.readings import Readings
from sublight.tuning.record import Cost, Finding, Gain, Verdict
from sublight.units import show_gib, show_rate, show_ratio

SHARED = Knob(
    "memory shared with the system",
    "little else in memory",
    "a part that shares memory reports none of its own, and what the system holds is missing for weights and caches",
    "github.com/antirez/ds4/issues/773",
    Gain.PLAUSIBLE,
    Cost("percents of a step", not_known("it depends on what else is running")),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    if not machine.gpus or not all(gpu.shares_memory for gpu in machine.gpus):
        return
    gpu = machine.gpus[0]
    values: dict[str, system.Value] | None = readings.parsed("/proc/meminfo")
    total = system.kib(values, "MemTotal") if values else None
    if values is None or total is None:
        note = f"{gpu.memory_bytes.note}, and {readings.missing('/proc/meminfo') or '/proc/meminfo has no MemTotal'}"
        yield SHARED.unread(readings, "/proc/meminfo", reason=note)
        return
    free = system.kib(values, "MemAvailable")
    yield SHARED.found(
        Verdict.FINE,
        f"{show_gib(total)} shared with the operating system"
        + (f", {show_gib(free)} of it available" if free is not None else "")
        + f"; of its own: not known, {gpu.memory_bytes.note}",
        readings.where("/proc/meminfo", values["MemTotal"].line),
        why=_bandwidths(gpu),
    )


def _bandwidths(gpu: GpuFacts) -> str:
    """What the catalogue knows of the card's bandwidth: both numbers, because a percentage of either is quoted."""
    if not gpu.catalogue:
        return ""
    from sublight.facts.gpu import parse_gpus

    _, card = parse_gpus(gpu.catalogue)
    sheet, measured = card.memory_bandwidth_bytes_per_s, card.measured_bandwidth_bytes_per_s
    if sheet.value is None or measured.value is None:
        return ""
    return (
        f"Its data sheet says {show_rate(sheet.value)}, and {show_rate(measured.value)} were reached "
        f"({measured.source}): a floor at the measured rate is {show_ratio(sheet.value / measured.value)} the one at "
        "the data sheet's"
    )


CHECK = Check("memory", ("nvidia-smi -q", "nvidia-smi --query-gpu", "/proc/meminfo"), _judge)
