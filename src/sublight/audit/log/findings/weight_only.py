"""Weight-only kernels where others were expected, and a warning that blames the card whatever the reason was."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from sublight.audit.log.choices import AUTO, asked_moe_backend, flag_value, refused
from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.record import EngineLog, Fact, FactKind
from sublight.facts.formats import Format
from sublight.facts.model import Model

_DEBUG = "start once with VLLM_LOGGING_LEVEL=DEBUG, which prints why each candidate was passed over"


class _Verdict(NamedTuple):
    level: Literal["info", "warn"]
    text: str
    advice: str = ""


def weight_only_findings(log: EngineLog, known: Known) -> Iterator[LogFinding]:
    """Experts on Marlin or emulated though their format has 4 or 8 bits, and linear layers apart from them."""
    warned = log.of(FactKind.WEIGHT_ONLY)
    chosen = [f for f in log.of(FactKind.MOE_BACKEND, FactKind.MOE_RUNNER) if "MARLIN" in f.get("backend").upper()]
    for fact in chosen:
        verdict = _verdict(log, fact, warned, known)
        yield LogFinding(
            id="weight-only-experts",
            level=verdict.level,
            subject="experts",
            text=verdict.text + _linear(log, known.model),
            proofs=tuple(log.proof(f) for f in (fact, *warned)),
            advice=verdict.advice,
        )
    for fact in log.of(FactKind.MOE_BACKEND):
        if "EMULATION" in fact.get("backend").upper():
            yield _emulated(log, fact)
    if warned and not chosen:
        yield _warning_alone(log, warned[0], known)


def _verdict(log: EngineLog, chosen: Fact, warned: tuple[Fact, ...], known: Known) -> _Verdict:
    """Whether Marlin is what checkpoint and card can have, was asked for, or stands in for something better."""
    unit = _unit(chosen, warned)
    formats = _expert_formats(known.model)
    has_unit = known.gpu.has_unit(unit.lower()) if known.gpu else None
    if formats and all(f.compute == "bf16" for f in formats):
        return _by_checkpoint(chosen, unit, formats, _blame(warned, known))
    if has_unit is False and known.gpu is not None:
        right = ", and the warning is right" if warned else ""
        return _Verdict(
            "info",
            f"{known.gpu.title} ({known.gpu.target}) has no {unit} units: weight-only kernels such as "
            f"{chosen.get('backend')} are what it can run for this format{right}.{_order(chosen)}",
        )
    asked, _ = asked_moe_backend(log)
    by_engine = chosen.kind is FactKind.MOE_RUNNER  # SGLang echoes what it chose itself as if it had been asked for
    if asked not in AUTO and asked == flag_value(log.engine, chosen.get("backend")) and not by_engine:
        text = f"{chosen.get('backend')} was asked for, and does not use the card's {unit} units."
        return _Verdict("info", text + _blame(warned, known), "start once without the flag, and compare")
    if has_unit and formats and known.gpu is not None:
        return _Verdict(
            "warn",
            f"experts are {_listed(formats)} with {unit} activations and {known.gpu.title} ({known.gpu.target}) has "
            f"{unit} units, yet {chosen.get('backend')} ran, which does not use them.{_order(chosen)}"
            f"{_blame(warned, known)}{_reasons(log)}",
            f"{_DEBUG}; or ask for one by --moe-backend, which ends with the reason if it cannot run"
            if log.engine == "vllm"
            else "ask for another one by --moe-runner-backend",
        )
    missing = [n for n, v in (("the checkpoint's format", formats), ("the card", known.gpu)) if not v]
    return _Verdict(
        "warn",
        f"experts run on {chosen.get('backend')}, which uses the weights' {unit} format for storage only."
        f"{_order(chosen)} Whether that is a loss is not known: name "
        f"{' and '.join(missing) or 'a card whose units are known'}.{_blame(warned, known)}{_reasons(log)}",
        _DEBUG if log.engine == "vllm" else "",
    )


def _by_checkpoint(chosen: Fact, unit: str, formats: list[Format], blame: str) -> _Verdict:
    return _Verdict(
        "info",
        f"experts are {_listed(formats)}: weights of 4 or 8 bits, activations of 16. Kernels that multiply quantised "
        f"activations do not apply, and {chosen.get('backend')} is what such a checkpoint gets.{blame} At batch 1 "
        "decode is bound by memory and reads the same bytes either way: no loss expected there; prefill does lose.",
        f"an export of the same model with {unit} activations, to use the card's {unit} units",
    )


def _order(chosen: Fact) -> str:
    passed_over = refused(chosen)
    return f" It was chosen after {', '.join(passed_over)}." if passed_over else ""


def _emulated(log: EngineLog, chosen: Fact) -> LogFinding:
    return LogFinding(
        id="emulated-experts",
        level="error",
        subject="experts",
        text=f"experts run on {chosen.get('backend')}: weights are dequantised in software and multiplied in BF16, far "
        f"from the speed of any kernel for {chosen.get('format')}." + _order(chosen) + _reasons(log),
        proofs=(log.proof(chosen),),
        advice=_DEBUG,
    )


def _unit(chosen: Fact, warned: tuple[Fact, ...]) -> str:
    """Which unit of the card the format would use: "FP4" or "FP8"."""
    if warned:
        return warned[0].get("format")
    return "FP8" if "8" in chosen.get("format") else "FP4"


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
    has_unit = known.gpu.has_unit(kind.lower()) if known.gpu else None
    if has_unit is None or known.gpu is None:
        means = "whether that is so depends on the card, which is not named or not known well enough"
    elif has_unit:
        means = f"{known.gpu.title} ({known.gpu.target}) does have them: the warning is about the choice"
    else:
        means = f"{known.gpu.title} ({known.gpu.target}) has none: the warning is right"
    return LogFinding(
        id="weight-only-warning",
        level="info" if has_unit is False else "warn",
        subject="linear layers or experts",
        text=f"some layers run on {kernel}, weight-only; the log says that the GPU has no {kind} units, and {means}.",
        proofs=(log.proof(warned),),
        advice=_DEBUG if log.engine == "vllm" else "",
    )
