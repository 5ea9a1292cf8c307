"""The kernel and what it was started with."""

import re
from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import system
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

KERNEL = Knob(
    "kernel",
    "the same when comparing",
    "no gain of a version by itself was published; 6.8, 6.17 and 6.18 behaved alike over PCIe",
    f"{RTX6K} hardware/collapse-report.md",
    Gain.NONE,
    unmeasured("none shown", "versions were compared without a difference"),
)
MITIGATIONS = Knob(
    "CPU mitigations",
    "leave them on",
    "mitigations=off changed nothing for transfers between cards, and it leaves the machine open",
    f"{RTX6K} hardware/collapse-report.md",
    Gain.NONE,
    unmeasured("none shown", "measured, without a difference"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    parameters: dict[str, list[str]] | None = readings.parsed("/proc/cmdline")
    if machine.kernel:
        source = "uname -sr" if readings.parsed("uname -sr") else "/proc/cmdline"
        yield KERNEL.found(Verdict.FINE, machine.kernel, readings.where(source))
    else:
        yield KERNEL.unread(readings, "uname -sr", "/proc/cmdline")
    cpu: system.Cpu | None = readings.parsed("lscpu")
    told = [
        f"{name}={value}"
        for name, values in (parameters or {}).items()
        for value in values
        if (name == "mitigations" and value.split(",")[0] == "off") or (name, value) in _SINGLE or name in _WITHOUT
    ]
    exposed = _exposed(cpu)
    count = f"; lscpu names {len(exposed)} vulnerabilities open" if exposed else ""
    if told:
        listed = " ".join(told[:4]) + (f" and {len(told) - 4} more" if len(told) > 4 else "")
        where = readings.where("/proc/cmdline")
        yield MITIGATIONS.found(
            Verdict.CHECK, f"off ({listed}){count}", where, readings.where("lscpu") if exposed else ""
        )
    elif parameters is None and cpu is None:
        yield MITIGATIONS.unread(readings, "lscpu", "/proc/cmdline")
    else:
        where = readings.where("lscpu" if cpu else "/proc/cmdline")
        found = "not turned off" if parameters is not None else "not known from lscpu alone, which names those open"
        yield MITIGATIONS.found(Verdict.FINE, f"{found}{count}", where)


_SINGLE = {
    (name, "off")
    for name in (
        "spectre_v2",
        "l1tf",
        "mds",
        "tsx_async_abort",
        "srbds",
        "mmio_stale_data",
        "retbleed",
        "spectre_bhi",
        "spec_store_bypass_disable",
    )
}
_WITHOUT = ("nopti", "nospectre_v1", "nospectre_v2")


def _exposed(cpu: system.Cpu | None) -> list[str]:
    if cpu is None:
        return []
    return [
        re.sub("^Vulnerability ", "", name)
        for name, value in cpu.values.items()
        if name.startswith("Vulnerability ") and value.text.startswith("Vulnerable")
    ]


CHECK = Check("kernel", ("uname -sr", "/proc/cmdline", "lscpu"), _judge)
