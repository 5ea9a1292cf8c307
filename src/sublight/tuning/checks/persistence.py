"""Whether the driver stays loaded between programs."""

from collections.abc import Iterator

from sublight.tuning.checks.base import Check, Knob, several, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import nvidia_q, nvidia_table
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
    on: list[bool] = []
    where = ""
    if log and log.gpus:
        fields = [gpu.get("Persistence Mode") for gpu in log.gpus]
        on = [field.text == "Enabled" for field in fields if field and field.has_value]
        where = readings.where("nvidia-smi -q", fields[0].line if fields[0] else 0)
    if not on and table and table.cards:
        on = [card.persistence for card in table.cards]
        where = readings.where("nvidia-smi", table.cards[0].line)
    if not on:
        yield PERSISTENCE.unread(readings, "nvidia-smi -q")
        return
    off = [index for index, state in enumerate(on) if not state]
    if off:
        yield PERSISTENCE.found(Verdict.CHECK, f"off on {several(off, len(on))}", where)
    else:
        yield PERSISTENCE.found(Verdict.FINE, f"on for {several(list(range(len(on))), len(machine.gpus))}", where)


CHECK = Check("persistence", ("nvidia-smi -q", "nvidia-smi"), _judge)
