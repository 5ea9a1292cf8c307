"""How readily the kernel's scheduler moves a thread to another core."""

from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

_DEFAULT_NS = 500_000
_PLACES = ("/sys/kernel/debug/sched/migration_cost_ns", "/proc/sys/kernel/sched_migration_cost_ns")

MIGRATION = Knob(
    "sched_migration_cost_ns",
    f"raised above {_DEFAULT_NS:,}",
    "a thread that ran less long ago than this stays on its core, and so does the one that launches kernels. Nobody "
    f"measured it by itself; the example there sets 50,000, which is less than the kernel's default of {_DEFAULT_NS:,}",
    f"{RTX6K} optimization/nccl-tuning.md",
    Gain.NONE,
    unmeasured("jitter or start-up", "listed there without a measurement of its own"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:  # noqa: ARG001 - the form of a check
    found = next((found for path in _PLACES if (found := readings.file(path)) is not None), None)
    if found is None:
        hidden = "since Linux 5.13 it stands in debugfs, which only root can read"
        reason = readings.missing("scheduler")
        yield MIGRATION.unread(readings, "scheduler", reason=f"{reason or 'nothing was printed'}; {hidden}")
        return
    text = found[0].text.strip()
    raised = text.isdecimal() and len(text) < 20 and int(text) > _DEFAULT_NS
    yield MIGRATION.found(Verdict.FINE if raised else Verdict.CHECK, text, found[1])


CHECK = Check("scheduler", ("scheduler",), _judge)
