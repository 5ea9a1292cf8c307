"""Settings of NVIDIA's kernel modules."""

from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

HMM = Knob(
    "heterogeneous memory (HMM)",
    "off (uvm_disable_hmm=1)",
    "with it on, machines with peer access over PCIe hung or stalled in NCCL",
    f"{RTX6K} hardware/pcie-bandwidth.md",
    Gain.PLAUSIBLE,
    unmeasured("jitter or start-up", "reported as hangs, not as a time"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    if len(machine.gpus) == 1 or machine.nvlink:
        return
    found = readings.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
    if found is None:
        known = readings["kernel settings"].text is not None
        reason = "nvidia_uvm has no such setting there, or is not loaded" if known else ""
        yield HMM.unread(readings, "kernel settings", reason=reason)
    elif found[0].text.strip() in ("Y", "1"):
        yield HMM.found(Verdict.FINE, "off (uvm_disable_hmm=Y)", found[1])
    else:
        yield HMM.found(
            Verdict.CHECK,
            f"on (uvm_disable_hmm={found[0].text.strip()})",
            found[1],
            command="options nvidia_uvm uvm_disable_hmm=1 in /etc/modprobe.d, where a start hangs",
        )


CHECK = Check("driver", ("kernel settings",), _judge)
