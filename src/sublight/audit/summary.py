"""From what was gathered to the record: the machine in a few lines, findings in order, flags, timings."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from sublight.audit import findings, origin
from sublight.audit.all_to_all import check_all_to_all
from sublight.audit.auditor import Auditor
from sublight.audit.importable import symbol_answer
from sublight.audit.installation import Installation
from sublight.audit.ladder import Answer, Rung
from sublight.audit.log import EngineLog, Known, read_log
from sublight.audit.proven import NO_GPU
from sublight.audit.question import Question
from sublight.audit.record import Audit, AuditFinding, Choice, EngineAudit, MachineSummary, SymbolAnswer, Timings
from sublight.audit.routes import symbol_gates
from sublight.audit.run import audit_engine
from sublight.audit.scene import Surroundings
from sublight.audit.seen import choices_of, of_another_run, of_log, seen_in
from sublight.audit.snapshot import KeepingDoor, SnapshotDoor
from sublight.audit.target import Target, capability
from sublight.audit.tuned import tuned_files
from sublight.facts.gpu import Gpu
from sublight.units import counted

_LEVELS = ("error", "warn", "info")


def audit(auditor: Auditor, question: Question) -> Audit:
    """Every backend of the engines asked for. Raises UsageError when one of them, or any at all, is not there."""
    engines: list[EngineAudit] = []
    found: list[AuditFinding] = []
    variables: frozenset[str] = frozenset()
    names = auditor.chosen()
    for name in names:
        found += check_all_to_all(auditor, name, question.target.a2a)
    log = read_log(auditor.options.log) if auditor.options.log else None
    given = seen_in(auditor.options.trace, log)
    for name in names:
        mine = log if log is not None and log.engine == name else None
        seen = msgspec.structs.replace(given, log=mine)
        result = audit_engine(auditor, name, question, seen)
        engines.append(result.audit)
        found += result.findings
        found += of_another_run(seen, question.target, result.audit.version)
        variables |= result.variables or frozenset()
    found += _of_libraries(auditor)
    found += _of_trying(auditor, engines)
    if log is not None:
        known = _beside(log, auditor, question, engines, variables)
        said = list(of_log(log, known, names))
        # The log says of a variable what the environment does, and what holds instead.
        told = {item.subject for item in said} & known.environment.keys()
        found = [*(item for item in found if item.subject not in told), *said]
    versions = {engine.name: engine.version for engine in engines}
    choices = choices_of(log, question.target, versions) if log is not None else ()
    return record(auditor, question.target, tuple(engines), (), found, choices)


def _beside(
    log: EngineLog, auditor: Auditor, question: Question, engines: Sequence[EngineAudit], variables: frozenset[str]
) -> Known:
    """What is known beside a log; of the checkpoint and the card that were named nothing, where it is of others."""
    version = next((engine.version for engine in engines if engine.name == log.engine), "")
    run = origin.of_log(log, question.target, version)
    return Known(
        model=None if run.is_of_another("architecture", "quantisation") else question.model,
        gpu=None if run.is_of_another("card") else question.gpu,
        environment=auditor.installation.environment,
        read_variables=variables,
        tuned=tuned_files(auditor, log, version),
        layout=question.target.layout,
    )


def audit_symbols(auditor: Auditor, symbols: Sequence[str], judged: Gpu | None = None) -> Audit:
    """Single names, without an engine: whether they can be imported, and where they really live.

    Conditions on the card behind a symbol are told too; they are answered for `judged`, where a card was named.
    """
    sources = auditor.sources()
    imported = auditor.importing(tuple(symbols))
    around = Surroundings(
        installation=auditor.installation,
        sources=sources,
        imported=imported,
        not_imported=auditor.not_imported,
        partial=not auditor.door.live,
    )
    with auditor.timed("reading"):
        answers = tuple(_with_gates(around, symbol, judged) for symbol in dict.fromkeys(symbols))
    if isinstance(auditor.door, KeepingDoor):
        auditor.door.keep_files(sources.reader.files, (), sources.reader.folders)
    return record(auditor, None, (), answers, [])


def _with_gates(around: Surroundings, symbol: str, judged: Gpu | None) -> SymbolAnswer:
    answer = symbol_answer(around, symbol)
    told = capability(judged) if judged is not None else None
    gates = symbol_gates(around.sources, symbol, told or _ANY_CARD)
    if told is None:
        gates = tuple(msgspec.structs.replace(gate, answer=Answer.NOT_KNOWN) for gate in gates if gate.targets)
    return msgspec.structs.replace(answer, gates=gates)


_ANY_CARD = (9, 0)  # which one does not matter where only the lists are wanted


def record(
    auditor: Auditor,
    target: Target | None,
    engines: tuple[EngineAudit, ...],
    symbols: tuple[SymbolAnswer, ...],
    odd: Sequence[AuditFinding],
    choices: tuple[Choice, ...] = (),
) -> Audit:
    installation = auditor.installation
    auditor.keep()
    found = [
        *odd,
        *findings.of_installation(installation),
        *findings.of_toolchain(installation, target.compute_capability if target else None),
        *findings.of_imports(auditor.imported),
        *_of_snapshot(auditor),
        *_of_loss(auditor),
        *_of_descriptions(auditor),
    ]
    distinct = {(item.level, item.subject, item.text): item for item in found}
    return Audit(
        machine=machine(installation, recorded=not auditor.door.live),
        target=target,
        engines=engines,
        symbols=symbols,
        choices=choices,
        findings=tuple(sorted(distinct.values(), key=lambda item: _LEVELS.index(item.level))),
        timings=Timings(
            asking_s=auditor.seconds["asking"],
            reading_s=auditor.seconds["reading"],
            importing_s=auditor.seconds["importing"],
            trying_s=auditor.seconds["trying"],
            imported=auditor.fresh,
            cached=auditor.cache.hits > 0 and auditor.cache.misses == 0,
        ),
        recording=auditor.door.recording() if isinstance(auditor.door, KeepingDoor) else None,
    )


def machine(installation: Installation, recorded: bool) -> MachineSummary:
    interpreter, cards, toolchain = installation.interpreter, installation.cards, installation.toolchain
    best = cards.best if cards else ()
    cuda = cards.driver_cuda if cards else None
    reasons = dict(installation.reasons)
    if cards is not None and not best:
        reasons["gpus"] = cards.smi_error or cards.driver_error
    return MachineSummary(
        name=installation.name,
        recorded=recorded,
        python=f"{interpreter.implementation} {interpreter.version} in {interpreter.prefix}" if interpreter else "",
        cards=dict(Counter(card.name or "unnamed card" for card in best)),
        driver=next((card.driver for card in cards.smi if card.driver), "") if cards else "",
        driver_cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        tools=tuple(f"{tool.tool} {tool.release} ({tool.path})" for tool in toolchain.tools if not tool.error)
        if toolchain
        else (),
        reasons=reasons,
    )


def _of_snapshot(auditor: Auditor) -> list[AuditFinding]:
    """What an audit of a snapshot asked for and the snapshot does not have."""
    lacking = sorted(auditor.door.lacking) if isinstance(auditor.door, SnapshotDoor) else []
    files = [item for item in lacking if item.startswith("read ")]
    if not files:
        return []
    return [
        AuditFinding(
            level="warn",
            subject="snapshot",
            text=f"{counted(len(files), 'source file that', 'source files that')} this question leads to "
            f"{'was' if len(files) == 1 else 'were'} not recorded, such as {files[0][5:]}",
            hint="a new snapshot of the machine, made for this target",
        )
    ]


def _of_libraries(auditor: Auditor) -> list[AuditFinding]:
    """Libraries beside an engine, in a line each: what an engine calls of them is among its own backends."""
    return [
        AuditFinding(
            level="info",
            subject=name,
            text="it is there too, as a library: what the engine calls of it is judged with the engine's backends",
            hint=f"sublight audit {name}, with the same options, for every entry point of its own",
        )
        for name in auditor.left_out()
    ]


def _of_trying(auditor: Auditor, engines: Sequence[EngineAudit]) -> list[AuditFinding]:
    """Why --try called nothing at all, where the machine, and no single backend, is the reason."""
    if not auditor.options.tries:
        return []
    steps = [step for engine in engines for ladder in engine.ladders for step in ladder.steps]
    no_gpu = [step.why for step in steps if step.rung in (Rung.EXECUTED, Rung.CORRECT) and step.why.startswith(NO_GPU)]
    why = no_gpu[0] if no_gpu else auditor.not_tried
    if not why:
        return []
    return [
        AuditFinding(
            level="warn",
            subject="--try",
            text=f"nothing was tried: {why}",
            hint="the same on a machine with the card that is judged for",
        )
    ]


def _of_loss(auditor: Auditor) -> list[AuditFinding]:
    """A machine that could not be reached any more, or an interpreter that fell silent, before all of it was read."""
    if not auditor.door.lost:
        return []
    silent = auditor.door.lost.startswith("the interpreter ")
    return [
        AuditFinding(
            level="error",
            subject="interpreter" if silent else "connection",
            text=f"{auditor.door.lost}; what was not told by then is not known",
            hint="the same again" if silent else "the same again, over a connection that holds",
        )
    ]


def _of_descriptions(auditor: Auditor) -> list[AuditFinding]:
    """Engines that another package describes, and whose description cannot be loaded."""
    return [
        AuditFinding(level="warn", subject=name, text=f"its description cannot be loaded, and it is left out: {why}")
        for name, why in auditor.broken.items()
    ]
