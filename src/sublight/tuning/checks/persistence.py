"""Whether the driver stays loaded between programs."""

from collections.abc import Iterator

from sublight.tuning.checks.base import Check, Knob, several, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import lspci, nvidia_q, nvidia_table
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

PERSISTENCE = Knob(
    "persistence mode",
    "on",
    "nvidia-persistenced keeps the driver's state while no program uses a card: programs start sooner, and a running "
    "one gains nothing",
    "nvidia-persistenced(1); docs.nvidia.com/deploy/driver-persistence",
    Gain.NONE,
    unmeasured("jitter or start-up", "seconds at the start of a program, nothing after it"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    log: nvidia_q.QueryLog | None = readings.parsed("nvidia-smi -q")
    table: nvidia_table.Table | None = readings.parsed("nvidia-smi")
    states: dict[str, bool] = {}  # by bus address
    line = 0
    source = "nvidia-smi -q"
    for gpu in log.gpus if log else ():
        field = gpu.get("Persistence Mode")
        if field and field.has_value:
            states[lspci.address(gpu.bus)] = field.text == "Enabled"
            line = line or field.line
    if not states and table and table.cards:
        source, line = "nvidia-smi", table.cards[0].line
        states = {lspci.address(card.bus): card.persistence for card in table.cards}
    told = [(gpu.index, states[at]) for gpu in machine.gpus if (at := lspci.address(gpu.bus)) in states]
    if not told:
        yield PERSISTENCE.unread(readings, "nvidia-smi -q")
        return
    off = [index for index, on in told if not on]
    total = len(machine.gpus)
    said = f"off on {several(off, total)}" if off else f"on for {several([index for index, _ in told], total)}"
    if len(told) < total:
        said += f"; not told for {several(sorted({gpu.index for gpu in machine.gpus} - dict(told).keys()), total)}"
    verdict = Verdict.FINE if len(told) == total and not off else Verdict.CHECK
    yield PERSISTENCE.found(verdict, said, readings.where(source, line))


CHECK = Check("persistence", ("nvidia-smi -q", "nvidia-smi"), _judge)
