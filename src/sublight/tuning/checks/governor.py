"""What sets the frequency of the processor."""

from collections import Counter
from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import system
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

GOVERNOR = Knob(
    "CPU governor",
    "performance",
    "one thread launches the kernels of a rank, and outside a CUDA graph its speed is the speed of the step",
    f"nvidia.github.io/grace-cpu-benchmarking-guide; {RTX6K} optimization/nccl-tuning.md",
    Gain.PLAUSIBLE,
    unmeasured("percents of a step", "campaigns report marginal or zero gain once decoding runs in a CUDA graph"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    found = readings.files("/sys/devices/system/cpu/", "/scaling_governor")
    if not found:
        cpu: system.Cpu | None = readings.parsed("lscpu")
        scaling = cpu.text("CPU(s) scaling MHz") if cpu else ""
        hint = f"; lscpu says they ran at {scaling} of their highest frequency" if scaling else ""
        reason = readings.missing("cpufreq") or "no governor was printed"
        if machine.hypervisor:
            reason += "; in a virtual machine the host sets the frequency"
        yield GOVERNOR.unread(readings, "cpufreq", reason=reason + hint)
        return
    counts = Counter(value.text.strip() for value in found.values())
    listed = ", ".join(f"{name} on {count}" for name, count in counts.most_common())
    drivers = {value.text.strip() for value in readings.files("/sys/devices/system/cpu/", "/scaling_driver").values()}
    by = f" ({', '.join(sorted(drivers))})" if drivers else ""
    where = readings.place(next(iter(found)))
    verdict = Verdict.FINE if set(counts) == {"performance"} else Verdict.CHECK
    yield GOVERNOR.found(verdict, f"{listed} of {len(found)} policies{by}", where)


CHECK = Check("governor", ("cpufreq", "lscpu"), _judge)
