"""Weight-only kernels where others were expected, and a warning that blames the card whatever the reason was."""

from collections.abc import Iterator

from sublight.audit.log.choices import refused
from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.record import EngineLog, Fact, FactKind
from sublight.facts.formats import Format
from sublight.facts.model import Model

_WEIGHT_ONLY = ("MARLIN", "HUMMING")
_DEBUG = "start once with VLLM_LOGGING_LEVEL=DEBUG, which prints why each candidate was passed over"


def weight_only_findings(log: EngineLog, known: Known) -> Iterator[LogFinding]:
    """Experts on a weight-only kernel though their format has 4 or 8 bits, and linear layers apart from them."""
    warned = log.of(FactKind.WEIGHT_ONLY)
    chosen = [f for f in log.of(FactKind.MOE_BACKEND, FactKind.MOE_RUNNER) if _is_weight_only(f.get("backend"))]
    for fact in chosen:
        yield _experts(log, fact, warned, known)
    for fact in log.of(FactKind.MOE_BACKEND):
        if "EMULATION" in fact.get("backend").upper():
            yield _emulated(log, fact)
    if warned and not chosen:
        yield _warning_alone(log, warned[0], known)


def _is_weight_only(backend: str) -> bool:
    return any(name in backend.upper() for name in _WEIGHT_ONLY)


def _experts(log: EngineLog, chosen: Fact, warned: tuple[Fact, ...], known: Known) -> LogFinding:
    backend, kind = chosen.get("backend"), _unit(chosen, warned)
    proofs = tuple(log.proof(fact) for fact in (chosen, *warned))
    formats = _expert_formats(known.model)
    weight_only = bool(formats) and all(f.compute == "bf16" for f in formats)
    has_unit = known.gpu.has_unit(kind) if known.gpu else None
    passed_over = refused(chosen)
    order = f" It was chosen after {', '.join(passed_over)}." if passed_over else ""
    advice = ""
    if weight_only:
        level = "info"
        text = (
            f"experts are {_listed(formats)}: weights of 4 or 8 bits, activations of 16. Kernels that multiply "
            f"quantised activations do not apply, and {backend} is what such a checkpoint gets.{_blame(warned, known)} "
            "At batch 1 decode is bound by memory and reads the same bytes either way: no loss expected there; prefill "
            "does lose."
        )
        advice = f"an export of the same model with {kind.upper()} activations, to use the card's {kind.upper()} units"
    elif has_unit is False and known.gpu is not None:
        level = "info"
        text = (
            f"{known.gpu.title} ({known.gpu.target}) has no {kind.upper()} units: weight-only kernels such as "
            f"{backend} are what it can run for this format"
            + (", and the warning is right." if warned else ".")
            + order
        )
    elif has_unit and formats and known.gpu is not None:
        level = "warn"
        text = (
            f"experts are {_listed(formats)} with {kind.upper()} activations and {known.gpu.title} "
            f"({known.gpu.target}) has {kind.upper()} units, yet {backend} ran, which does not use them.{order}"
            f"{_blame(warned, known)}{_reasons(log)}"
        )
        if log.engine == "vllm":
            advice = f"{_DEBUG}; or ask for one by --moe-backend, which ends with the reason if it cannot run"
        else:
            advice = "ask for another one by --moe-runner-backend"
    else:
        level = "warn"
        unknown = [n for n, v in (("the checkpoint's format", formats), ("the card", known.gpu)) if not v]
        text = (
            f"experts run on {backend}, which uses the weights' {kind.upper()} format for storage only.{order} Whether "
            f"that is a loss is not known: name {' and '.join(unknown) or 'a card whose units are known'}."
            f"{_blame(warned, known)}{_reasons(log)}"
        )
        advice = _DEBUG if log.engine == "vllm" else ""
    return LogFinding(
        id="weight-only-experts",
        level=level,  # type: ignore[arg-type]  # one of the three
        subject="experts",
        text=text + _linear(log, known.model),
        proofs=proofs,
        advice=advice,
    )


def _emulated(log: EngineLog, chosen: Fact) -> LogFinding:
    passed_over = refused(chosen)
    return LogFinding(
        id="emulated-experts",
        level="error",
        subject="experts",
        text=f"experts run on {chosen.get('backend')}: weights are dequantised in software and multiplied in BF16, far "
        f"from the speed of any kernel for {chosen.get('format')}."
        + (f" It was chosen after {', '.join(passed_over)}." if passed_over else "")
        + _reasons(log),
        proofs=(log.proof(chosen),),
        advice=_DEBUG,
    )


def _unit(chosen: Fact, warned: tuple[Fact, ...]) -> str:
    """Which unit of the card the format would use: "fp4" or "fp8"."""
    if warned:
        return warned[0].get("format").lower()
    return "fp8" if "8" in chosen.get("format") else "fp4"


def _expert_formats(model: Model | None) -> list[Format]:
    if model is None:
        return []
    found = {t.format.name: t.format for t in model.main if t.row == "moe.experts" and t.is_matrix}
    return list(found.values())


def _listed(formats: list[Format]) -> str:
    return " and ".join(f.title for f in formats)


def _blame(warned: tuple[Fact, ...], known: Known) -> str:
    """What to make of the warning that the card has no such units."""
    if not warned or known.gpu is None:
        return ""
    kind = warned[0].get("format")
    if known.gpu.has_unit(kind.lower()):
        return (
            f" The warning that the GPU has no {kind} is printed with every such choice: {known.gpu.title} "
            f"({known.gpu.target}) does have it, the choice was not about the chip."
        )
    return ""


def _reasons(log: EngineLog) -> str:
    said = [f"{f.get('backend')}: {f.get('reason')}" for f in log.of(FactKind.MOE_REFUSED) if f.get("reason")]
    return f" Reasons in the log: {'; '.join(said)}." if said else ""


def _linear(log: EngineLog, model: Model | None) -> str:
    """Linear layers are chosen for apart from the experts."""
    kernels = [f"{f.get('kernel')} for {f.get('format')}" for f in log.of(FactKind.LINEAR_KERNEL)]
    if kernels:
        return f" Linear layers are a choice of their own: {', '.join(kernels)}."
    if model is None:
        return ""
    formats = {
        t.format.title
        for t in model.main
        if t.is_matrix and t.row != "moe.experts" and t.format.is_quantised and t.kind == "linear"
    }
    if not formats:
        return ""
    return f" Linear layers ({', '.join(sorted(formats))}) are a choice of their own, which this log does not name."


def _warning_alone(log: EngineLog, warned: Fact, known: Known) -> LogFinding:
    kind, kernel = warned.get("format"), warned.get("kernel")
    if known.gpu is None or known.gpu.has_unit(kind.lower()) is None:
        level, means = "warn", "whether that is so depends on the card, which is not named"
    elif known.gpu.has_unit(kind.lower()):
        level, means = "warn", f"{known.gpu.title} ({known.gpu.target}) does have them: the warning is about the choice"
    else:
        level, means = "info", f"{known.gpu.title} ({known.gpu.target}) has none: the warning is right"
    return LogFinding(
        id="weight-only-warning",
        level=level,  # type: ignore[arg-type]  # one of the three
        subject="linear layers or experts",
        text=f"some layers run on {kernel}, weight-only; the log says that the GPU has no {kind} units, and {means}.",
        proofs=(log.proof(warned),),
        advice=_DEBUG if log.engine == "vllm" else "",
    )
