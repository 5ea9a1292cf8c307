"""Pages: huge ones that are made behind one's back, reserved ones, and swapping."""

import re
from collections.abc import Iterator

from sublight.tuning.checks.base import KERNEL_DOCS, RTX6K, Check, Knob, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import system
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

TRANSPARENT = Knob(
    "transparent huge pages",
    "madvise",
    "always makes every process wait while pages are put together; madvise leaves that to those that ask for it",
    f"docs.amd.com 57300; {KERNEL_DOCS}/admin-guide/mm/transhuge.html",
    Gain.PLAUSIBLE,
    unmeasured("jitter or start-up", "nobody published its effect on decoding"),
)
RESERVED = Knob(
    "reserved huge pages",
    "0",
    "engines and NCCL do not use them by themselves, and what is reserved is missing elsewhere",
    f"{KERNEL_DOCS}/admin-guide/mm/hugetlbpage.html",
    Gain.NONE,
    unmeasured("none shown", "nobody published a gain for decoding"),
)
SWAPPINESS = Knob(
    "swappiness",
    "0 to 10",
    "pages of the launching process that were swapped out have to come back first; without swap it does nothing",
    f"{RTX6K} optimization/nccl-tuning.md",
    Gain.NONE,
    unmeasured("jitter or start-up", "listed there without a measurement of its own"),
)
_CHOSEN = re.compile(r"\[([^\]]+)\]")


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:  # noqa: ARG001 - the form of a check
    yield _transparent(readings)
    yield _reserved(readings)
    found = readings.file("/proc/sys/vm/swappiness")
    if found is None:
        yield SWAPPINESS.unread(readings, "kernel settings")
        return
    value = found[0].text.strip()
    memory: dict[str, system.Value] | None = readings.parsed("/proc/meminfo")
    without_swap = memory is not None and system.kib(memory, "SwapTotal") == 0
    low = value.isdecimal() and int(value) <= 10
    said = f"{value}, and there is no swap" if without_swap else value
    yield SWAPPINESS.found(Verdict.FINE if low or without_swap else Verdict.CHECK, said, found[1])


def _transparent(readings: Readings) -> Finding:
    enabled = readings.file("/sys/kernel/mm/transparent_hugepage/enabled")
    defrag = readings.file("/sys/kernel/mm/transparent_hugepage/defrag")
    if enabled is None:
        return TRANSPARENT.unread(readings, "kernel settings")
    pages = _chosen(enabled[0].text)
    merging = _chosen(defrag[0].text) if defrag else ""
    fine = pages in ("madvise", "never") and merging != "always"
    found = pages + (f", defrag {merging}" if merging else "")
    return TRANSPARENT.found(Verdict.FINE if fine else Verdict.CHECK, found, enabled[1], defrag[1] if defrag else "")


def _reserved(readings: Readings) -> Finding:
    found = readings.file("/proc/sys/vm/nr_hugepages")
    if found is None:
        memory: dict[str, system.Value] | None = readings.parsed("/proc/meminfo")
        if memory is None or "HugePages_Total" not in memory:
            return RESERVED.unread(readings, "kernel settings")
        found = memory["HugePages_Total"], readings.where("/proc/meminfo", memory["HugePages_Total"].line)
    value = found[0].text.strip()
    return RESERVED.found(Verdict.FINE if value == "0" else Verdict.CHECK, value, found[1])


def _chosen(text: str) -> str:
    """The word in brackets: "always [madvise] never"."""
    match = _CHOSEN.search(text)
    return match[1] if match else text.strip()


CHECK = Check("pages", ("kernel settings", "/proc/meminfo"), _judge)
