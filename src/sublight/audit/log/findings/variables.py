"""Variables that are set and that nobody reads."""

from collections.abc import Iterator

from sublight.audit.ladder import Proof
from sublight.audit.log.choices import asked_moe_backend, nested
from sublight.audit.log.echo import without_secrets
from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.record import EngineLog, Fact, FactKind
from sublight.audit.variables import meant, replaced

_PREFIX: dict[str, tuple[str, ...]] = {"vllm": ("VLLM_",), "sglang": ("SGLANG_", "SGL_")}


def variable_findings(log: EngineLog, known: Known) -> Iterator[LogFinding]:
    """Those the log calls unknown, and those of the environment that the engine's source does not read."""
    said = {fact.get("name"): fact for fact in log.of(FactKind.UNKNOWN_VARIABLE)}
    silent = _unread(log, known) - said.keys()
    rest = []
    for name in [*said, *sorted(silent)]:
        fact = said.get(name)
        if name in known.read_variables:
            yield _read_after_all(log, name, said[name])
        elif name in replaced() and log.engine == "vllm":
            yield _taken_over(log, name, fact, known)
        else:
            rest.append((name, fact))
    if rest:
        yield _unknown(log, rest, known)


def _unread(log: EngineLog, known: Known) -> set[str]:
    if not known.read_variables:
        return set()
    own = {name for name in known.environment if name.startswith(_PREFIX[log.engine])}
    return own - known.read_variables


def _set(name: str, fact: Fact | None, known: Known) -> str:
    """NAME=value where somebody says the value."""
    value = known.environment.get(name) or (fact.get("value") if fact else "")
    return without_secrets(f"{name}={value}") if value else name


def _taken_over(log: EngineLog, name: str, fact: Fact | None, known: Known) -> LogFinding:
    instead = replaced()[name]
    effective, proofs = _effective(log, instead.setting)
    return LogFinding(
        id="variable-not-read",
        level="error",
        subject=name,
        text=f"{_set(name, fact, known)} is not read by {log.title}, which has {instead.flag} instead. {effective}",
        proofs=(*((log.proof(fact),) if fact else ()), *proofs),
        advice=instead.advice,
    )


def _effective(log: EngineLog, setting: str) -> tuple[str, tuple[Proof, ...]]:
    """What really holds, from the running engine's own words and never from the wish."""
    if setting == "moe_backend":
        asked, at = asked_moe_backend(log)
        chosen = log.of(FactKind.MOE_BACKEND)
        ran = ", ".join(f"{f.get('backend')} for {f.get('format')} experts" for f in chosen)
        text = f"Effective: moe_backend {asked or 'not printed'} -> {ran or 'the log does not say what'}."
        return text, (*((log.proof(at),) if at else ()), *(log.proof(f) for f in chosen))
    if setting == "attention_backend":
        chosen = log.of(FactKind.ATTENTION)
        names = ", ".join(dict.fromkeys(f.get("backend") for f in chosen if not f.get("phase")))
        return f"Effective: {names or 'the log does not say'}.", tuple(log.proof(f) for f in chosen[:1])
    if setting == "linear_backend":
        chosen = log.of(FactKind.LINEAR_KERNEL)
        names = ", ".join(f"{f.get('kernel')} for {f.get('format')}" for f in chosen)
        return f"Effective: {names or 'the log does not say'}.", tuple(log.proof(f) for f in chosen)
    value = nested(log, setting) or log.setting(setting)
    return f"Effective: {setting} {value or 'not printed'}.", ()


def _unknown(log: EngineLog, rest: list[tuple[str, Fact | None]], known: Known) -> LogFinding:
    names = [_set(name, fact, known) for name, fact in rest]
    near = [f"{name} -> {found[0]}" for name, _ in rest if (found := meant(name, known.read_variables))]
    one = len(rest) == 1
    return LogFinding(
        id="variables-unknown",
        level="warn",
        subject="environment",
        text=f"{len(rest)} {'variable is' if one else 'variables are'} set that {log.title} does not know: "
        f"{', '.join(names)}. {'It' if one else 'They'} may be left over, misspelt, of another version, or read by an "
        "add-on of this build; nothing reads them through the engine's own list.",
        proofs=tuple(log.proof(fact) for _, fact in rest if fact is not None),
        advice=f"perhaps meant: {', '.join(near)}" if near else "check each against the version that runs",
    )


def _read_after_all(log: EngineLog, name: str, fact: Fact) -> LogFinding:
    return LogFinding(
        id="variable-unlisted",
        level="info",
        subject=name,
        text=f"{log.title} calls {name} unknown, yet code that is installed reads it: it is missing in the engine's "
        "list only, or the log is of another version.",
        proofs=(log.proof(fact),),
    )
