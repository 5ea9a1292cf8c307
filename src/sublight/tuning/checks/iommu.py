"""Whether DMA addresses are translated on their way."""

import re
from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, costs
from sublight.tuning.machine import MachineFacts
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

_MEASURED = f"{RTX6K} hardware/collapse-report.md"
_OFF = ("amd_iommu=off", "intel_iommu=off", "iommu=off")
_PASSTHROUGH = ("iommu=pt", "iommu.passthrough=1", "amd_iommu=pt")
_ON = ("intel_iommu=on", "iommu=force", "iommu.passthrough=0", "iommu=nopt", "amd_iommu=force_enable", "iommu=on")

IOMMU = Knob(
    "IOMMU",
    "off, or iommu=pt",
    "with full translation a single flow over PCIe was 15 % slower, and all-reduces over 8 GPUs hung; peer copies can "
    "fault and be dropped without an error",
    _MEASURED,
    Gain.MEASURED,
    costs("milliseconds a step", 15, "% of a flow's bandwidth, or a hang", _MEASURED),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    parameters: dict[str, list[str]] | None = readings.parsed("/proc/cmdline")
    given = [f"{name}={value}" for name, values in (parameters or {}).items() for value in values]
    given = [part for option in given for part in _split(option)]
    groups = _groups(readings)
    where = readings.where("/proc/cmdline")
    said = [option for option in given if option in (*_OFF, *_PASSTHROUGH, *_ON)]
    virtual = (
        f"this is a virtual machine ({machine.hypervisor}), and the IOMMU of its host is not seen here"
        if machine.hypervisor
        else ""
    )
    if any(option in _OFF for option in said):
        clash: tuple[str, ...] = ()
        if groups:
            clash = (f"the kernel was told {' '.join(said)}, and yet {groups} IOMMU groups exist",)
        verdict = Verdict.CHECK if clash else Verdict.FINE
        yield IOMMU.found(verdict, f"off ({' '.join(said)})", where, contradictions=clash, why=virtual)
    elif any(option in _PASSTHROUGH for option in said):
        yield IOMMU.found(Verdict.FINE, f"passthrough ({' '.join(said)})", where, why=virtual)
    elif types := readings.files("/sys/kernel/iommu_groups/", "/type"):
        yield _by_type(readings, {path: value.text for path, value in types.items()}, virtual)
    elif said:
        yield IOMMU.found(Verdict.CHANGE, f"translating ({' '.join(said)})", where, why=virtual)
    elif groups == 0:
        there = readings.where("ls of IOMMUs")
        found = "no IOMMU is in use" + (" by this guest" if virtual else "")
        yield IOMMU.found(Verdict.FINE, found, there, where if parameters is not None else "", why=virtual)
    else:
        reason = readings.missing("IOMMU groups", "/proc/cmdline") if parameters is None else (
            f"{where} does not set it, and then the kernel's build decides"
        )  # fmt: skip
        yield IOMMU.unread(readings, "IOMMU groups", reason=reason)


def _by_type(readings: Readings, types: dict[str, str], virtual: str) -> Finding:
    translating = [path for path, kind in types.items() if kind.startswith("DMA")]
    where = readings.where("IOMMU groups")
    if not translating:
        return IOMMU.found(Verdict.FINE, f"passthrough in all {len(types)} groups", where, why=virtual)
    return IOMMU.found(
        Verdict.CHANGE,
        f"translating in {len(translating)} of {len(types)} groups",
        where,
        why=virtual,
        command="iommu=pt on the kernel's command line, then p2pBandwidthLatencyTest",
    )


def _split(option: str) -> list[str]:
    """`amd_iommu=off,foo` is two settings."""
    name, _, values = option.partition("=")
    return [f"{name}={value}" for value in re.split(",", values)] if values else [name]


def _groups(readings: Readings) -> int | None:
    listed: dict[str, tuple[str, ...]] | None = readings.parsed("ls of IOMMUs")
    if listed is None or "/sys/kernel/iommu_groups" not in listed:
        return None
    return len(listed["/sys/kernel/iommu_groups"])


CHECK = Check("iommu", ("/proc/cmdline", "IOMMU groups", "ls of IOMMUs"), _judge)
