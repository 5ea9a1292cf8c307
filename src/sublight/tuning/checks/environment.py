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
BUFFERS = Knob(
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS",
    "1",
    "NCCL then has buffers of its low-latency protocol for point-to-point transfers through a network as well; those "
    "inside one machine have them anyway",
    f"{_SOURCE}; docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    Gain.NONE,
    unmeasured("none shown", "listed there without a measurement of its own"),
)
INFINIBAND = Knob(
    "NCCL_IB_DISABLE",
    "1 on one machine without InfiniBand",
    "NCCL does not look for InfiniBand adapters at its start then; where ranks of several machines use it, it stays",
    _SOURCE,
    Gain.PLAUSIBLE,
    unmeasured("jitter or start-up", "listed there without a measurement of its own"),
)
# As NCCL's ncclGetLevel() reads them: names in capitals alone, and older numbers, of which all above 4 are SYS.
_NO_PEERS = {"NCCL_P2P_DISABLE": ("1",), "NCCL_P2P_LEVEL": ("LOC", "0")}


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    if len(machine.gpus) == 1:
        return
    variables: dict[str, str] | None = readings.parsed("env")
    knobs = [THREADS] if machine.nvlink else [LEVEL, CHANNELS, ALLOCATOR, BUFFERS, INFINIBAND, THREADS]
    if variables is None:
        yield from (knob.unread(readings, "env") for knob in knobs)
        return
    if not machine.gpus:
        # Nothing is wrong with a variable that nothing reads.
        reason = f"whether it matters: {machine.gpus_note}"
        yield from (knob.unread(readings, "nvidia-smi -q", reason=reason) for knob in knobs)
        return
    where = readings.where("env")
    off = [f"{name}={variables[name]}" for name, values in _NO_PEERS.items() if variables.get(name) in values]
    if off:
        yield _disabled(machine, " ".join(off), where)
    elif not machine.nvlink:
        yield _level(machine, variables.get("NCCL_P2P_LEVEL"), where)
    if not machine.nvlink:
        channels = variables.get("NCCL_MIN_NCHANNELS")
        yield _variable(CHANNELS, "NCCL_MIN_NCHANNELS", channels, (_count(channels) or 0) >= 8, where)
        name = "PYTORCH_ALLOC_CONF" if variables.get("PYTORCH_ALLOC_CONF") else "PYTORCH_CUDA_ALLOC_CONF"
        allocator = variables.get(name)
        yield _variable(ALLOCATOR, name, allocator, "expandable_segments:True" not in (allocator or ""), where)
        for knob in (BUFFERS, INFINIBAND):
            value = variables.get(knob.name)
            yield _variable(knob, knob.name, value, (_count(value) or 0) == 1, where)
    threads = variables.get("OMP_NUM_THREADS")
    yield _variable(THREADS, "OMP_NUM_THREADS", threads, 1 <= (_count(threads) or 0) <= 8, where)


def _disabled(machine: MachineFacts, said: str, where: str) -> Finding:
    """It holds for NVLink as well, and NCCL_P2P_DISABLE beats any level. Peer access that fails is no loss."""
    peers = machine.peer_access
    works = machine.nvlink or (peers is not None and all(path in ("OK", "X") for row in peers.paths for path in row))
    return LEVEL.found(
        Verdict.CHANGE if works else Verdict.CHECK,
        f"{said}: NCCL uses no peer access at all",
        where,
        recommended="not set" if machine.nvlink else "",
        why=_OTHER,
    )


def _level(machine: MachineFacts, value: str | None, where: str) -> Finding:
    needed = "SYS" if (machine.numa_nodes or 1) > 1 else "PHB"
    number = _count(value)
    level = (value or "") if number is None else "SYS" if number >= 4 else "PHB" if number == 3 else ""
    return _variable(LEVEL, "NCCL_P2P_LEVEL", value, level == "SYS" or level == needed == "PHB", where)


def _count(text: str | None) -> int | None:
    """The number of a variable; None where it is none. A list is for nested levels, and its first entry counts."""
    first = (text or "").split(",")[0].strip()
    return int(first) if first.isdecimal() and len(first) < 10 else None


def _variable(knob: Knob, name: str, value: str | None, good: bool, where: str) -> Finding:
    found = f"{name} is not set" if value is None else f"{name}={value}"
    return knob.found(Verdict.FINE if good else Verdict.CHECK, found, where, why=_OTHER)


CHECK = Check("environment", ("env",), _judge)
