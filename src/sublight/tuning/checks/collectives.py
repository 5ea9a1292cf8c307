"""All-reduces between cards without NVLink: what engines and NCCL take for granted, and get wrong."""

from collections import Counter
from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, costs
from sublight.tuning.machine import MachineFacts
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

_VLLM = "github.com/vllm-project/vllm/issues/56128"
_NCCL = f"{RTX6K} optimization/nccl-tuning.md; github.com/NVIDIA/nccl/issues/2127"

ALLREDUCE = Knob(
    "all-reduce without NVLink",
    "one-shot over PCIe when small",
    "vLLM and SGLang turn their own all-reduce off for more than two GPUs that NVLink does not join, even where peer "
    "access works: 4 to 5 us a message of 4 to 8 KB became 19 to 20 us. How far a one-shot carries is the machine's: "
    "it beat NCCL up to 128 KB to 1 MB on 4 cards, and up to 8 KB on 8 cards behind switches of two sockets (16 KB: "
    "151 against 69 us). Kernels that pull can hang over PCIe, so nothing is to be forced without a test",
    f"{_VLLM}; {RTX6K} hardware/asus-esc8000a-e13p-broadcom-switches.md",
    Gain.MEASURED,
    costs("milliseconds a step", 15, "us a message", _VLLM, "20 us by NCCL against 5 us; a step of GLM-5 sends 157"),
)
NCCL_GRAPH = Knob(
    "NCCL's view of an AMD host",
    "NCCL_PROTO=LL, or a graph file",
    "NCCL takes 16 GB/s for whatever AMD processor joins the cards, and then picks the SIMPLE protocol and two "
    "channels: 48 us instead of 26 us for an all-reduce of 32 KB on two EPYC 9575F; NCCL_MIN_NCHANNELS=8 helps as well",
    _NCCL,
    Gain.MEASURED,
    costs("milliseconds a step", 22, "us a message of 32 KB", _NCCL, "48.16 us without the graph file, 26.20 us with"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    if len(machine.gpus) == 1 or (machine.topology and len(machine.topology.gpus) < 2):
        return
    source = "nvidia-smi topo -m"
    if machine.topology is None:
        reason = "" if readings[source].text is None else "its matrix is cut short"
        yield ALLREDUCE.unread(readings, source, reason=reason)
        return
    where = readings.where(source)
    paths = [
        path
        for place, row in enumerate(machine.topology.paths)
        for path in row[place + 1 :]
    ]  # fmt: skip
    kinds = ", ".join(f"{count} {path}" for path, count in Counter(paths).most_common())
    if machine.nvlink:
        yield ALLREDUCE.found(Verdict.FINE, f"NVLink joins every pair ({kinds})", where, recommended="NVLink in use")
        return
    if len(machine.topology.gpus) > 2:
        yield ALLREDUCE.found(
            Verdict.CHECK,
            f"{len(machine.topology.gpus)} GPUs without NVLink between all of them (pairs: {kinds})",
            where,
            command="grep -i 'custom.*all.*reduce' in the engine's start-up log",
        )
    else:
        yield ALLREDUCE.found(Verdict.FINE, f"two GPUs ({kinds}), for which engines keep their own", where)
    yield from _nccl_graph(readings, machine)


def _nccl_graph(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    if "AMD" not in machine.cpu:
        return
    variables: dict[str, str] | None = readings.parsed("env")
    given = [name for name in ("NCCL_PROTO", "NCCL_GRAPH_FILE", "NCCL_MIN_NCHANNELS") if (variables or {}).get(name)]
    helped = any(_helps(name, (variables or {})[name]) for name in given)
    sockets = f"{machine.sockets} x " if machine.sockets else ""
    found = f"{sockets}{machine.cpu}; " + (
        ", ".join(f"{name}={(variables or {})[name]}" for name in given)
        if given
        else "none of the variables is set"
        if variables is not None
        else "the variables are not known"
    )
    yield NCCL_GRAPH.found(
        Verdict.FINE if helped else Verdict.CHECK,
        found,
        readings.where("lscpu"),
        readings.where("env") if variables is not None else "",
        why="Newer NCCL may know better: the log decides",
        command="" if helped else "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH,TUNING at the engine's start",
    )


def _helps(name: str, value: str) -> bool:
    """Whether it keeps NCCL from what it picks by itself: the SIMPLE protocol, and two channels."""
    if name == "NCCL_PROTO":
        named = {protocol.strip().upper() for protocol in value.removeprefix("^").split(",")}
        return "SIMPLE" in named if value.startswith("^") else "SIMPLE" not in named and bool({"LL", "LL128"} & named)
    if name == "NCCL_MIN_NCHANNELS":
        return value.isdecimal() and int(value[:6]) >= 8
    return True


CHECK = Check("collectives", ("nvidia-smi topo -m", "lscpu", "env"), _judge)
