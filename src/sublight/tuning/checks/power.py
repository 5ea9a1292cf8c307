"""Power: limits below the default, clocks that something holds down, and cards that wait at full utilisation."""

from collections.abc import Iterator
from typing import NamedTuple

from sublight.tuning.checks.base import NVIDIA_SMI, RTX6K, Check, Knob, costs, several, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import nvidia_q
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

_ISSUE = "github.com/local-inference-lab/rtx6kpro/issues/25"
_WAITING = 1 / 3  # of the limit; 140 of 600 W at 100 % was seen where kernels spun, reading memory draws half and more
# Reasons that are a limit somebody set, and no trouble of the card: named, and to be looked at.
_SET = ("Applications Clocks Setting", "SW Power Cap", "Sync Boost", "Display Clock Setting")
_SECTIONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")

_BUSY = "nvidia-smi --query-gpu=index,utilization.gpu,power.draw,power.limit --format=csv  # while it decodes"

LIMIT = Knob(
    "power limit",
    "the default",
    "at one stream 300 W against 450 and 500 W made 0 to 2 % on RTX PRO 6000; the memory clock does not follow the "
    "limit. Prefill and large batches do",
    f"{RTX6K} hardware/blackwell-power-limit-sweep.md",
    Gain.MEASURED,
    costs("percents of a step", 2, "% of a step at one stream", f"{RTX6K} hardware", "300 W against 500 W"),
)
HELD_DOWN = Knob(
    "clocks held down",
    "no reason but Idle",
    "a card that slows down for heat or for the power supply slows every rank, which wait for it",
    NVIDIA_SMI,
    Gain.PLAUSIBLE,
    unmeasured("milliseconds a step", "it depends on how far the clock falls"),
)
WAITING = Knob(
    "busy, and not working",
    "over 1/3 of the limit at 100 %",
    "utilisation counts time with a kernel on the card, and one that spins in a collective is such a kernel: a host "
    "with 140 of 600 W at 100 % took 25.3 ms for a step that took 11.4 ms on another. Look at the all-reduce (its "
    "protocol, its channels, the engine's own) and for a rank that is late",
    _ISSUE,
    Gain.MEASURED,
    costs("milliseconds a step", 89, "us a collective", _ISSUE, "(25.3 - 11.4) ms over 156 all-reduces"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    yield _limit(readings, machine)
    yield _held_down(readings, machine)
    yield _waiting(readings, machine)


def _limit(readings: Readings, machine: MachineFacts) -> Finding:
    known = [gpu for gpu in machine.gpus if gpu.power_limit_w.value is not None]
    if not known:
        note = machine.gpus[0].power_limit_w.note if machine.gpus else ""
        return LIMIT.unread(readings, "nvidia-smi -q", reason=note)
    lowered = [
        g for g in known if g.power_default_w.value is not None and g.power_limit_w.known < g.power_default_w.value
    ]
    first = lowered[0] if lowered else known[0]
    of = f" of {first.power_default_w.value:.0f} W by default" if first.power_default_w.value is not None else ""
    where = several([gpu.index for gpu in lowered or known], len(machine.gpus))
    limits = {gpu.power_limit_w.value for gpu in known}
    uneven = f"; cards differ: {min(limits):.0f} to {max(limits):.0f} W" if len(limits) > 1 else ""  # type: ignore[type-var]
    return LIMIT.found(
        Verdict.CHECK if lowered or uneven else Verdict.FINE,
        f"{first.power_limit_w.known:.0f} W{of} on {where}{uneven}",
        first.power_limit_w.source,
        why="With one limit for all, no rank waits for a slower one" if uneven else "",
        command="nvidia-smi -q -d POWER,CLOCK  # under load" if lowered or uneven else "",
    )


def _held_down(readings: Readings, machine: MachineFacts) -> Finding:
    log: nvidia_q.QueryLog | None = readings.parsed("nvidia-smi -q")
    reasons = list(_reasons(log, machine)) if log else []
    if log is None or not reasons:
        return HELD_DOWN.unread(readings, "nvidia-smi -q")
    active: dict[str, list[int]] = {}
    for reason in reasons:
        if reason.active and reason.name != "Idle":
            active.setdefault(reason.name, []).append(reason.gpu)
    # Of the reading that names reasons, not of another one under load.
    idle = not any(section.utilization > 0 for section in log.gpus)
    listed = "; ".join(f"{name} on {several(gpus, len(machine.gpus))}" for name, gpus in active.items())
    if active:
        trouble = [name for name in active if name not in _SET]
        first = next(reason.line for reason in reasons if reason.active and reason.name in (trouble or active))
        return HELD_DOWN.found(
            Verdict.CHANGE if trouble else Verdict.CHECK,
            listed,
            readings.where("nvidia-smi -q", first),
            why="" if trouble else "A limit that was set holds them, and nothing else: see the power limit",
            command="nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
        )
    return HELD_DOWN.found(
        Verdict.CHECK if idle else Verdict.FINE,
        "no reason is active" + (", read while idle" if idle else ""),
        readings.where("nvidia-smi -q"),
        contradictions=("an idle card is held down by nothing: only a reading under load can show it",) if idle else (),
        command="nvidia-smi -q -d PERFORMANCE  # under load" if idle else "",
    )


class _Reason(NamedTuple):
    gpu: int
    name: str
    active: bool
    line: int


def _reasons(log: nvidia_q.QueryLog, machine: MachineFacts) -> Iterator[_Reason]:
    indices = {gpu.bus: gpu.index for gpu in machine.gpus}
    for section in log.gpus:
        for path, field in section.fields.items():
            parent, _, name = path.rpartition("/")
            if parent.startswith(_SECTIONS) and field.text in ("Active", "Not Active"):
                yield _Reason(indices[section.bus], name, field.text == "Active", field.line)


def _waiting(readings: Readings, machine: MachineFacts) -> Finding:
    known = [
        (gpu, gpu.power_draw_w.known, gpu.power_limit_w.known, gpu.utilization.known)
        for gpu in machine.gpus
        if None not in (gpu.power_draw_w.value, gpu.power_limit_w.value, gpu.utilization.value)
    ]
    if not known:
        gpu = machine.gpus[0] if machine.gpus else None
        notes = (
            [f.note for f in (gpu.power_draw_w, gpu.power_limit_w, gpu.utilization) if f.value is None] if gpu else []
        )
        return WAITING.unread(readings, "nvidia-smi --query-gpu", reason=notes[0] if notes else "")
    busy = [entry for entry in known if entry[3] >= 90]
    waiting = [entry for entry in busy if entry[1] < _WAITING * entry[2]]
    if not busy:
        gpu, draw, limit, utilization = max(known, key=lambda entry: entry[3])
        return WAITING.found(
            Verdict.NOT_KNOWN,
            f"no card was busy (at the most {utilization:.0f} %, {draw:.0f} of {limit:.0f} W)",
            gpu.utilization.source,
            command=_BUSY,
        )
    gpu, draw, limit, utilization = (waiting or busy)[0]
    found = f"{draw:.0f} of {limit:.0f} W at {utilization:.0f} % on "
    found += several([entry[0].index for entry in waiting or busy], len(machine.gpus))
    return WAITING.found(
        Verdict.CHECK if waiting else Verdict.FINE,
        found + (": kernels wait, they do not work" if waiting else ""),
        gpu.power_draw_w.source,
        command="sublight trace on a profile of one rank: time in collectives, and which rank is late"
        if waiting
        else "",
    )


CHECK = Check("power", ("nvidia-smi -q", "nvidia-smi --query-gpu", "nvidia-smi"), _judge)
