"""Whether DMA addresses are translated on their way."""

from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, costs
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import system
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict
from sublight.units import counted

_MEASURED = f"{RTX6K} hardware/collapse-report.md"
_VENDORS = {"amd_iommu": "AMD", "intel_iommu": "Intel"}  # each of them is read by the driver of that vendor alone
# Of these the last one counts, by whichever of the two names; "off" is final wherever it stands.
_MODES = {
    **dict.fromkeys(("iommu=pt", *(f"iommu.passthrough={yes}" for yes in ("1", "y", "on"))), "passthrough"),
    **dict.fromkeys(("iommu=nopt", *(f"iommu.passthrough={no}" for no in ("0", "n", "off"))), "translating"),
}
_ON = ("intel_iommu=on", "iommu=force", "amd_iommu=force_enable", "iommu=on")

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
    said, told = _told(readings["/proc/cmdline"].text, machine.cpu)
    groups = _groups(readings)
    where = readings.where("/proc/cmdline")
    virtual = (
        f"this is a virtual machine ({machine.hypervisor}), and the IOMMU of its host is not seen here"
        if machine.hypervisor
        else ""
    )
    # What the kernel shows comes before what it was told.
    if types := readings.files("/sys/kernel/iommu_groups/", "/type"):
        yield _by_type(readings, {path: value.text for path, value in types.items()}, told, said, virtual)
    elif told == "off":
        clash = (f"the kernel was told {said}, and yet {groups} IOMMU groups exist",) if groups else ()
        yield IOMMU.found(
            Verdict.CHECK if clash else Verdict.FINE, f"off ({said})", where, contradictions=clash, why=virtual
        )
    elif groups == 0:
        found = "no IOMMU is in use" + (" by this guest" if virtual else "")
        yield IOMMU.found(Verdict.FINE, found, readings.where("ls of IOMMUs"), where if said else "", why=virtual)
    elif told:
        verdict = Verdict.FINE if told == "passthrough" else Verdict.CHANGE
        yield IOMMU.found(verdict, f"{told} ({said})", where, why=virtual)
    else:
        reason = readings.missing("IOMMU groups", "/proc/cmdline") if readings["/proc/cmdline"].text is None else (
            f"{where} does not set it, and then the kernel's build decides"
        )  # fmt: skip
        yield IOMMU.unread(readings, "IOMMU groups", reason=reason)


def _told(command_line: str | None, cpu: str) -> tuple[str, str]:
    """What the command line says of it, and what that comes to: "off", "passthrough", "translating", or "" for nothing.

    As iommu_setup() and iommu_set_def_domain_type() of Linux read it; a parameter for the other vendor says nothing.
    """
    other = {name for name, vendor in _VENDORS.items() if any(v in cpu and v != vendor for v in _VENDORS.values())}
    given = [
        option
        for name, value in system.arguments(command_line or "")
        if name not in other
        for option in _split(name, value)
    ]
    said = [o for o in given if o in _MODES or o in _ON or o in ("iommu=off", "amd_iommu=off", "intel_iommu=off")]
    intel = [option for option in said if option in ("intel_iommu=on", "intel_iommu=off")]
    modes = [_MODES[option] for option in said if option in _MODES]
    listed = " ".join(said)
    if "iommu=off" in said or "amd_iommu=off" in said or intel[-1:] == ["intel_iommu=off"]:
        return listed, "off"
    if modes:
        return listed, modes[-1]
    return listed, "translating" if any(option in _ON for option in said) else ""


def _by_type(readings: Readings, types: dict[str, str], told: str, said: str, virtual: str) -> Finding:
    translating = [path for path, kind in types.items() if kind.startswith("DMA")]
    where = readings.where("IOMMU groups")
    clash: tuple[str, ...] = ()
    if told == "off":
        clash = (f"the kernel was told {said}, and yet {len(types)} IOMMU groups exist",)
    elif told and (told == "translating") != bool(translating):
        clash = (f"the kernel was told {said}, and the groups say otherwise",)
    if not translating:
        found = f"passthrough in {'all ' if len(types) > 1 else ''}{counted(len(types), 'group')}"
        return IOMMU.found(Verdict.FINE, found, where, why=virtual, contradictions=clash)
    return IOMMU.found(
        Verdict.CHANGE,
        f"translating in {len(translating)} of {counted(len(types), 'group')}",
        where,
        why=virtual,
        contradictions=clash,
        command="iommu=pt on the kernel's command line, then p2pBandwidthLatencyTest",
    )


def _split(name: str, values: str) -> list[str]:
    """`amd_iommu=off,foo` is two settings."""
    return [f"{name}={value}" for value in values.lower().split(",")]


def _groups(readings: Readings) -> int | None:
    listed: dict[str, tuple[str, ...]] | None = readings.parsed("ls of IOMMUs")
    if listed is None or "/sys/kernel/iommu_groups" not in listed:
        return None
    return len(listed["/sys/kernel/iommu_groups"])


CHECK = Check("iommu", ("/proc/cmdline", "IOMMU groups", "ls of IOMMUs"), _judge)
