"""Power saving of PCIe ports, which can meet a card's link while it changes its speed."""

from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

PORT_POWER = Knob(
    "PCIe port power saving",
    "pcie_port_pm=off pcie_aspm=off",
    "a port that was suspended while its card's link changed between the lowest and the highest generation reported a "
    "surprise link down, and the machine locked up",
    f"{RTX6K} hardware/pcie-bandwidth.md",
    Gain.PLAUSIBLE,
    unmeasured("jitter or start-up", "reported as lock-ups, not as a time"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    parameters: dict[str, list[str]] | None = readings.parsed("/proc/cmdline")
    if machine.hypervisor:  # the ports are the host's
        return
    if parameters is None:
        yield PORT_POWER.unread(readings, "/proc/cmdline")
        return
    told = [f"{n}={parameters[n][-1]}" for n in ("pcie_port_pm", "pcie_aspm") if n in parameters]
    off = "pcie_port_pm=off" in told
    found = " ".join(told) if told else "neither is set"
    yield PORT_POWER.found(Verdict.FINE if off else Verdict.CHECK, found, readings.where("/proc/cmdline"))


CHECK = Check("port-power", ("/proc/cmdline",), _judge)
