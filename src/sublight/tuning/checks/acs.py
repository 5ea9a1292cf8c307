"""Access Control Services: bridges that send peer traffic up to the root complex instead of across."""

from collections.abc import Iterator

from sublight.tuning.checks.base import NCCL_DOCS, RTX6K, Check, Knob, costs
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import lspci
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

_MEASURED = f"{RTX6K} hardware/asus-esc8000a-e13p-broadcom-switches.md"

ACS = Knob(
    "ACS on the way between GPUs",
    "ReqRedir- CmpltRedir- (bare metal)",
    "a bridge that redirects sends peer traffic up to the root port; two cards on one switch went from 50 to 103 GB/s "
    "when it was off. It isolates devices: not to be cleared under a virtual machine, or with ATS in use",
    f"{_MEASURED}; {NCCL_DOCS}",
    Gain.MEASURED,
    costs("milliseconds a step", 103 / 50, "x bandwidth of a pair on one switch", _MEASURED),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    if len(machine.gpus) == 1 or machine.nvlink:
        return
    pci: lspci.Pci | None = readings.parsed("lspci -vvv")
    bridges = pci.above_gpus if pci else ()
    if pci is None or not bridges:
        reason = "" if pci is None else "the listing shows no bridge above a GPU, as in a virtual machine"
        yield ACS.unread(readings, "lspci -vvv", reason=reason)
        return
    if any(bridge.denied for bridge in bridges) and not any(bridge.acs is not None for bridge in bridges):
        yield ACS.unread(readings, "lspci -vvv", reason="lspci was not run as root: capabilities are <access denied>")
        return
    able = [bridge for bridge in bridges if bridge.acs is not None]
    redirecting = [bridge for bridge in able if bridge.redirects]
    virtual = f"this is a virtual machine ({machine.hypervisor}): the host decides" if machine.hypervisor else ""
    if not redirecting:
        found = f"off on all {len(able)} bridges above GPUs that have it" if able else "no bridge above a GPU has it"
        lines = [readings.where("lspci -vvv", bridge.acs_line) for bridge in able[:1]]
        yield ACS.found(Verdict.FINE, found, *(lines or [readings.where("lspci -vvv")]), why=virtual)
        return
    yield ACS.found(
        Verdict.CHECK if virtual else Verdict.CHANGE,
        f"redirects on {len(redirecting)} of {len(able)} bridges above GPUs: "
        + ", ".join(bridge.address for bridge in redirecting[:6])
        + (f" and {len(redirecting) - 6} more" if len(redirecting) > 6 else ""),
        *(readings.where("lspci -vvv", bridge.acs_line) for bridge in redirecting[:3]),
        why=virtual,
        command="p2pBandwidthLatencyTest before and after; setpci on those bridges, or the firmware's ACS setting",
    )


CHECK = Check("acs", ("lspci -vvv",), _judge)
