"""The all-to-all that was asked for, beside the names that each engine's option takes."""

from contextlib import suppress
from typing import Protocol, runtime_checkable

from sublight.audit.auditor import Auditor
from sublight.audit.record import AuditFinding
from sublight.audit.roomy import roomy
from sublight.audit.source.tree import Sources
from sublight.errors import HostError, UsageError


@runtime_checkable
class HasAllToAll(Protocol):
    """An engine with an option for the all-to-all of experts."""

    def all_to_alls(self, sources: Sources) -> tuple[str, ...] | None:
        """Names that the option takes; None when no list of them was found."""
        ...


def check_all_to_all(auditor: Auditor, name: str, a2a: str) -> list[AuditFinding]:
    """What to say of an all-to-all for one engine. Raises UsageError for a name that its option does not take.

    "none" is plain tensor parallelism, which every engine has.
    """
    engine = auditor.engines[name]
    if a2a == "none":
        return []
    if not isinstance(engine, HasAllToAll):
        return [_finding(name, f"--a2a {a2a} was not used: no all-to-all option of this engine is known")]
    known: tuple[str, ...] | None = None
    with auditor.timed("reading"), suppress(HostError):  # a machine that is lost is a finding of its own
        known = roomy(lambda: engine.all_to_alls(auditor.sources()))
    if known is None:
        text = f"whether {a2a} is one of its all-to-all backends is not known: no list of them was found"
        return [_finding(name, text)]
    if a2a not in known:
        raise UsageError(
            f"--a2a {a2a} for {name}",
            f"its all-to-all backends are {', '.join(known)}",
            "one of them, or no --a2a; where several engines are there, one of them by name",
        )
    return []


def _finding(name: str, text: str) -> AuditFinding:
    return AuditFinding(level="warn", subject=name, text=text)
