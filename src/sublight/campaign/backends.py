"""Backends: what the newest audit of each engine found, and what an earlier one of the same engine found otherwise."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from sublight.audit.ladder import Answer, Ladder, Rung, Step
from sublight.audit.record import Audit, AuditFinding, Auto, EngineAudit, Flag
from sublight.audit.target import Target
from sublight.campaign.folder import Entry, Folder

ON_A_GPU = (Rung.EXECUTED, Rung.CORRECT, Rung.FAST)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A backend that stands otherwise than before; None where an audit does not have it."""

    area: str
    name: str
    was: Ladder | None
    now: Ladder | None


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One engine in its newest audit.

    Attributes:
        ladders: backends that somebody can ask for. Of their proofs those remain that show something ran.
        not_read: areas that could not be read, and why.
        before: file of the audit it is held against, "" where there is none.
        asked_otherwise: what that one asked otherwise: "TP8, asked before was TP4".
        changes: what stands otherwise than there.
    """

    name: str
    version: str
    ladders: tuple[Ladder, ...]
    autos: tuple[Auto, ...]
    flags: tuple[Flag, ...]
    not_read: dict[str, str] = {}
    before: str = ""
    before_version: str = ""
    asked_otherwise: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


class AuditStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One audit that is the newest of an engine.

    Attributes:
        engines: those that it is the newest of.
        odd: what was silently chosen, fell back, or is wrong with the installation; what a log proves comes first.
    """

    file: str
    written_at: str
    machine: str
    target: Target
    engines: tuple[Engine, ...]
    odd: tuple[AuditFinding, ...]


class _Seen(msgspec.Struct, frozen=True):
    """One engine in one audit."""

    entry: Entry
    audit: Audit
    engine: EngineAudit


def audits(folder: Folder) -> tuple[AuditStanding, ...]:
    """The newest audit of every engine, oldest first."""
    seen: dict[str, list[_Seen]] = {}
    for entry in folder.of("audit"):
        audit = entry.record
        if isinstance(audit, Audit) and audit.target is not None:
            for engine in audit.engines:
                seen.setdefault(engine.name, []).append(_Seen(entry, audit, engine))
    newest: dict[str, list[Engine]] = {}
    for times in seen.values():
        newest.setdefault(times[-1].entry.file, []).append(_engine(times))
    return tuple(
        AuditStanding(
            file=entry.file,
            written_at=entry.written_at,
            machine=entry.record.machine.name,
            target=entry.record.target,
            engines=tuple(newest[entry.file]),
            odd=tuple(_odd(entry.record.findings)),
        )
        for entry in folder.of("audit")
        if entry.file in newest and isinstance(entry.record, Audit) and entry.record.target is not None
    )


def _engine(times: Sequence[_Seen]) -> Engine:
    """The last of all audits of an engine, against the last that asked the same, or else the one before."""
    last, earlier = times[-1], times[:-1]
    engine = last.engine
    same = [one for one in earlier if one.audit.target == last.audit.target] or list(earlier)
    before = same[-1] if same else None
    return Engine(
        name=engine.name,
        version=engine.version,
        ladders=tuple(_lighter(ladder) for ladder in _choices(engine)),
        autos=tuple(replace(auto, proofs=()) for auto in engine.autos),
        flags=tuple(flag for flag in last.audit.flags if flag.engine == engine.name),
        not_read=engine.not_read,
        before=before.entry.file if before else "",
        before_version=before.engine.version if before else "",
        asked_otherwise=tuple(_otherwise(before.audit.target, last.audit.target)) if before else (),
        changes=tuple(_changes(before.engine, engine)) if before else (),
    )


def _choices(engine: EngineAudit) -> list[Ladder]:
    """Without what only an enumeration has."""
    return [ladder for ladder in engine.ladders if ladder.steps[0].answer is not Answer.FAIL]


def _lighter(ladder: Ladder) -> Ladder:
    """Without proofs but the first of each rung that passed on a GPU: the audit itself has all of them."""
    return replace(ladder, steps=tuple(_light(step) for step in ladder.steps))


def _light(step: Step) -> Step:
    ran = step.rung in ON_A_GPU and step.answer is Answer.PASS
    return replace(step, proofs=step.proofs[:1] if ran else (), hint="")


def _changes(before: EngineAudit, now: EngineAudit) -> Iterator[Change]:
    """Of areas that both audits could read: an area that was not asked for is no loss."""
    read = {ladder.area for ladder in before.ladders} & {ladder.area for ladder in now.ladders}
    old = {(x.area, x.name): x for x in _choices(before) if x.area in read}
    new = {(x.area, x.name): x for x in _choices(now) if x.area in read}
    for area, name in dict.fromkeys((*new, *old)):
        was, found = old.get((area, name)), new.get((area, name))
        if _stands(was) != _stands(found):
            yield Change(
                area=area, name=name, was=_lighter(was) if was else None, now=_lighter(found) if found else None
            )


def _stands(ladder: Ladder | None) -> object:
    """What a verdict says: the rung that says no, or what ran and what is open; and where it leads."""
    if ladder is None:
        return None
    if ladder.verdict is not None:
        return ladder.verdict.rung, ladder.destination if ladder.verdict.rung is Rung.REACHABLE else ""
    ran = [step.rung for step in ladder.steps if step.rung in ON_A_GPU and step.answer is Answer.PASS]
    unknown = [step.rung for step in ladder.steps if step.answer is Answer.NOT_KNOWN]
    return (ran[-1:], ladder.destination) if ran else (unknown[:1], ladder.destination)


def _otherwise(before: Target | None, now: Target | None) -> Iterator[str]:
    """What was asked otherwise, the newer first. Of a model the name stands for all that follows from it."""
    old, new = _asked(before), _asked(now)
    told = [f"{what} {new[what]}, asked before was {old[what]}" for what in new if new[what] != old.get(what)]
    if not told and before != now:
        told = ["the model's configuration is another one"]
    yield from told


def _asked(target: Target | None) -> dict[str, str]:
    if target is None:
        return {}
    return {
        "model": target.model,
        "card": target.gpu,
        "layout": str(target.layout),
        "all-to-all": target.a2a,
        "drafting": "on" if target.speculative else "off",
    }


def _odd(found: Sequence[AuditFinding]) -> list[AuditFinding]:
    """What deserves a look, and whatever a log says; each with its first proof."""
    kept = [replace(f, proofs=f.proofs[:1]) for f in found if f.level != "info" or _logged(f)]
    return sorted(kept, key=lambda f: not _logged(f))


def _logged(found: AuditFinding) -> bool:
    return any(proof.kind == "log" for proof in found.proofs)
