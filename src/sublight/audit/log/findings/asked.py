"""Asked for and not used: quantisation, backends, fusions, and settings that the engine replaced."""

from collections.abc import Iterator

from sublight.audit.log.choices import AUTO, asked_moe_backend, flag_value
from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.proven import proven_experts
from sublight.audit.log.record import EngineLog, Fact, FactKind


def asked_findings(log: EngineLog, _known: Known) -> Iterator[LogFinding]:
    yield from _quantization(log)
    yield from _moe(log)
    yield from _attention(log)
    yield from _fusion(log)
    yield from _overrides(log)


def _quantization(log: EngineLog) -> Iterator[LogFinding]:
    """The checkpoint's own method wins over the one that was asked for, without a word."""
    asked, used, at = log.asked.get("quantization"), "", log.config.at
    loaded = log.of(FactKind.QUANTIZATION)
    if loaded:
        used, at = loaded[-1].get("method"), loaded[-1].first
    elif log.engine == "vllm":
        used = log.config.get("quantization")
    # "modelopt" becoming "modelopt_fp4" is the same method, found out in more detail.
    if asked in AUTO or used in AUTO or at is None or used == asked or used.startswith(f"{asked}_"):
        return
    algorithm = f" ({loaded[-1].get('algorithm')})" if loaded and loaded[-1].get("algorithm") else ""
    yield LogFinding(
        id="quantization-not-used",
        level="error",
        subject="quantization",
        text=f"--quantization {asked} was asked for; the weights were loaded as {used}{algorithm}. The checkpoint's "
        f"own method won, and nothing in the log says so: the argument brought no kernels of {asked} into this run.",
        proofs=(*((log.proof(log.asked.at),) if log.asked.at else ()), log.proof(at)),
        advice=f"a checkpoint that is made for {asked}, or leave the argument out; "
        "to choose kernels, the engine's flag for MoE backends",
    )


def _moe(log: EngineLog) -> Iterator[LogFinding]:
    asked, at = asked_moe_backend(log)
    if asked in AUTO:
        return
    chosen = [(f.get("backend"), flag_value(log.engine, f.get("backend")), f) for f in log.of(FactKind.MOE_BACKEND)]
    ran = [(p.logged, p.name, p.proof) for p in proven_experts(log) if p.how == "its own line"]
    found = [(logged, log.proof(fact)) for logged, name, fact in chosen if name and name != asked]
    if not chosen:
        found += [(logged, proof) for logged, name, proof in ran if name != asked]
    if found and not any(name == asked for _, name, _ in [*chosen, *ran]):
        yield LogFinding(
            id="moe-backend-not-used",
            level="error",
            subject="experts",
            # SGLang echoes its arguments after it has filled them in: it may have been its own wish.
            text=f"MoE backend {asked} was {'set' if log.engine == 'sglang' else 'asked for'}, and "
            f"{', '.join(logged for logged, _ in found)} ran.",
            proofs=(*((log.proof(at),) if at else ()), *(proof for _, proof in found)),
            advice=f"the conditions of {asked} in this version: checkpoint format, card, expert-parallel layout",
        )


def _attention(log: EngineLog) -> Iterator[LogFinding]:
    asked = log.asked.get("attention_backend").rsplit(".", 1)[-1]
    chosen = [f for f in log.of(FactKind.ATTENTION) if not f.get("phase")]
    if asked in AUTO or not chosen or any(f.get("backend").lower() == asked.lower() for f in chosen):
        return
    if log.engine == "sglang" and any(f.get("reason") or "default" in f.first.text for f in chosen):
        return  # SGLang echoes what it chose itself as if it had been asked for
    yield LogFinding(
        id="attention-backend-not-used",
        level="error",
        subject="attention",
        text=f"attention backend {asked} was asked for, and {', '.join(f.get('backend') for f in chosen)} was chosen.",
        proofs=(*((log.proof(log.asked.at),) if log.asked.at else ()), *(log.proof(f) for f in chosen)),
        advice=f"the conditions of {asked} in this version: head size, cache format, card",
    )


def _fusion(log: EngineLog) -> Iterator[LogFinding]:
    """All-reduce fused with the norm behind it: enabled in the configuration, switched off later."""
    wanted = [f for f in log.of(FactKind.FUSIONS) if "allreduce" in f.get("names")]
    off = [f for f in log.of(FactKind.ALL_REDUCE) if f.get("state") == "off" and _is_fused(f)]
    on = [f for f in log.of(FactKind.ALL_REDUCE) if f.get("state") == "on" and _is_fused(f)]
    if not off or on:
        return
    reasons = "; ".join(dict.fromkeys(f.get("reason") for f in off if f.get("reason"))) or "the log does not say why"
    yield LogFinding(
        id="fused-all-reduce-off",
        level="warn" if wanted else "info",
        subject="all-reduce",
        text=("all-reduce fused with RMSNorm was enabled and is off again" if wanted else "fused all-reduce is off")
        + f" ({reasons}): each all-reduce and the norm behind it are launches of their own.",
        proofs=tuple(log.proof(f) for f in (*wanted[:1], *off)),
        advice="on PCIe cards there is nothing to do; with NVLink, a FlashInfer that fits the engine",
    )


def _is_fused(fact: Fact) -> bool:
    return fact.get("method") in ("FlashInfer fusion", "fused with RMSNorm")


def _overrides(log: EngineLog) -> Iterator[LogFinding]:
    for fact in log.of(FactKind.OVERRIDE):
        asked, used, reason = fact.get("asked"), fact.get("used"), fact.get("reason")
        replaced = (f"{asked} was replaced" if asked else "replaced") + (f" by {used}" if used else "")
        yield LogFinding(
            id="setting-replaced",
            level="warn",
            subject=fact.get("what"),
            text=f"{fact.get('what')}: {replaced}" + (f" ({reason})" if reason else "") + ".",
            proofs=(log.proof(fact),),
        )
