"""Variables that NCCL, PyTorch and OpenMP read. Those of the shell that asked: a running server has its own."""

from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, costs, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

_SOURCE = f"{RTX6K} optimization/nccl-tuning.md"
_ONESHOT = f"{RTX6K} optimization/pcie-oneshot-allreduce.md"
_OTHER = "This is the shell that was asked; a running server has its own (/proc/PID/environ)"

LEVEL = Knob(
    "NCCL_P2P_LEVEL",
    "SYS, or PHB on one processor",
    "NCCL does not use peer access between root complexes by itself, and goes through host memory instead: decoding "
    "went from 67.3 to 69.7 tok/s at one stream on 4 cards, where NCCL did all the messages. Set too high for a "
    "machine it can hang",
    _ONESHOT,
    Gain.MEASURED,
    costs("percents of a step", (69.7 / 67.3 - 1) * 100, "% of a step, where NCCL does it all", _ONESHOT),
)
CHANNELS = Knob(
    "NCCL_MIN_NCHANNELS",
    "8",
    "two channels are the default: 22 GB/s became 37.6 in large all-reduces. It is bandwidth, not latency: prefill",
    _SOURCE,
    Gain.MEASURED,
    costs("percents of a step", 37.6 / 22.2, "x bandwidth of large all-reduces", _SOURCE),
)
ALLOCATOR = Knob(
    "expandable_segments",
    "not set",
    "such segments cannot be shared by CUDA IPC, which that all-reduce needs",
    _ONESHOT,
    Gain.PLAUSIBLE,
    unmeasured("milliseconds a step", "the all-reduce fails or falls back; nobody timed it"),
)
THREADS = Knob(
    "OMP_NUM_THREADS",
    "8",
    "each rank starts a thread a core by default, and eight ranks disturb each other",
    _SOURCE,
    Gain.PLAUSIBLE,
    unmeasured("jitter or start-up", "listed there without a measurement of its own"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    if len(machine.gpus) == 1:
        return
    variables: dict[str, str] | None = readings.parsed("env")
    knobs = [THREADS] if machine.nvlink else [LEVEL, CHANNELS, ALLOCATOR, THREADS]
    if variables is None:
        yield from (knob.unread(readings, "env") for knob in knobs)
        return
    if not machine.gpus:
        # Nothing is wrong with a variable that nothing reads.
        reason = f"whether it matters: {machine.gpus_note}"
        yield from (knob.unread(readings, "nvidia-smi -q", reason=reason) for knob in knobs)
        return
    where = readings.where("env")
    if not machine.nvlink:
        level = variables.get("NCCL_P2P_LEVEL")
        needed = "SYS" if (machine.numa_nodes or 1) > 1 else "PHB"
        good = level in ("SYS", "4") or (level in ("PHB", "3") and needed == "PHB")
        yield _variable(LEVEL, "NCCL_P2P_LEVEL", level, good, where)
        channels = variables.get("NCCL_MIN_NCHANNELS", "")
        enough = channels.isdecimal() and int(channels) >= 8
        yield _variable(CHANNELS, "NCCL_MIN_NCHANNELS", channels or None, enough, where)
        name = "PYTORCH_CUDA_ALLOC_CONF"
        allocator = variables.get("PYTORCH_ALLOC_CONF") or variables.get(name)
        yield _variable(ALLOCATOR, name, allocator, "expandable_segments:True" not in (allocator or ""), where)
    threads = variables.get("OMP_NUM_THREADS")
    yield _variable(THREADS, "OMP_NUM_THREADS", threads, bool(threads), where)


def _variable(knob: Knob, name: str, value: str | None, good: bool, where: str) -> Finding:
    found = f"{name} is not set" if value is None else f"{name}={value}"
    return knob.found(Verdict.FINE if good else Verdict.CHECK, found, where, why=_OTHER)


CHECK = Check("environment", ("env",), _judge)
