"""How deep an idle core sleeps, and how long it takes to wake."""

from collections.abc import Iterator

from sublight.tuning.checks.base import KERNEL_DOCS, Check, Knob, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

_QUICK_US = 20  # a wake-up that a step of milliseconds does not notice
_PARAMETERS = ("processor.max_cstate", "intel_idle.max_cstate", "idle", "cpuidle.off")

IDLE_STATES = Knob(
    "C-states",
    "wake within a few us",
    "between two steps the launching core may fall asleep and has to wake first; deep states are turned off one by "
    "one, or all of them by whoever holds /dev/cpu_dma_latency open",
    f"{KERNEL_DOCS}/power/pm_qos_interface.html",
    Gain.PLAUSIBLE,
    unmeasured("percents of a step", "nobody published a decode step with and without deep states"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    parameters: dict[str, list[str]] = readings.parsed("/proc/cmdline") or {}
    given = [f"{name}={parameters[name][-1]}" for name in _PARAMETERS if name in parameters]
    told = f"; the kernel was told {' '.join(given)}" if given else ""
    start = "/sys/devices/system/cpu/cpu0/cpuidle/"
    latencies = readings.files(start, "/latency")
    if not latencies:
        reason = (readings.missing("cpuidle") or "no idle state was printed") + told
        if machine.hypervisor:
            reason += "; in a virtual machine the host decides"
        yield IDLE_STATES.unread(readings, "cpuidle", reason=reason)
        return
    states = []
    for path, latency in latencies.items():
        folder = path.rpartition("/")[0]
        name, off = readings.file(f"{folder}/name"), readings.file(f"{folder}/disable")
        usable = off is None or off[0].text.strip() == "0"
        if latency.text.strip().isdecimal():
            states.append((int(latency.text), name[0].text.strip() if name else folder.rpartition("/")[2], usable))
    deepest = max((state for state in states if state[2]), default=(0, "none", True))
    found = f"the deepest in use is {deepest[1]}, {deepest[0]} us to wake (of {len(states)} states, CPU 0){told}"
    where = readings.place(next(iter(latencies)))
    yield IDLE_STATES.found(Verdict.FINE if deepest[0] <= _QUICK_US else Verdict.CHECK, found, where)


CHECK = Check("idle-states", ("cpuidle", "/proc/cmdline"), _judge)
