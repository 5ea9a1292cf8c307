"""All-reduce: the engine's own kernels switched off by a rule, and what published timings say that costs."""

from collections.abc import Iterator

from sublight.audit.log.choices import graphs
from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.record import EngineLog, Fact, FactKind
from sublight.errors import SublightError
from sublight.facts.interconnect import Interconnect, interconnect_for
from sublight.facts.workload import Layout, Workload
from sublight.limits.collectives import Collective, step_collectives
from sublight.units import show_count, show_time

_PCIE, _P2P = "more than two PCIe-only GPUs", "no P2P"
# github.com/vllm-project/vllm #56128 (128 to 384 KiB), and both curves of facts/catalogue/interconnects/pcie5.toml.
_CROSSING = "64 to 384 KiB"


def collective_findings(log: EngineLog, known: Known) -> Iterator[LogFinding]:
    custom = [f for f in log.of(FactKind.ALL_REDUCE) if f.get("method") == "custom"]
    off = [f for f in custom if f.get("state") == "off"]
    if off and not any(f.get("state") == "on" for f in custom):
        yield _off(log, off[-1], known)
    elif not custom and log.setting("disable_custom_all_reduce") == "True" and _several(log, known):
        yield _asked_off(log, known)


def _off(log: EngineLog, fact: Fact, known: Known) -> LogFinding:
    cause, reason = fact.get("cause"), fact.get("reason")
    cost, source = _cost(log, known)
    text = f"custom all-reduce is off ({reason}){_said_by(log, fact, known)}: all-reduces go through NCCL. {cost}"
    advice = "measure all-reduces at this size on this machine, NCCL's protocols and channels included"
    if cause == _PCIE:
        text += (
            " The rule looks at NVLink, not at whether peers reach each other: with P2P over PCIe, one-shot kernels do "
            f"run. Where both were timed, NCCL became the faster one above {_CROSSING} a message: keep it for prefill. "
            "Do not force custom kernels blindly: those that read from their peers hang on some hosts."
        )
    elif cause == _P2P:
        advice = "`sublight host`: IOMMU, ACS and the topology decide whether cards reach each other"
    return LogFinding(
        id="custom-all-reduce-off",
        level="warn",
        subject="all-reduce",
        text=text,
        proofs=(log.proof(fact),),
        advice=advice,
        source=source,
    )


def _asked_off(log: EngineLog, known: Known) -> LogFinding:
    cost, source = _cost(log, known)
    at = log.config.at or log.asked.at
    return LogFinding(
        id="custom-all-reduce-off",
        level="info",
        subject="all-reduce",
        text=f"custom all-reduce is switched off by an argument: all-reduces go through NCCL. {cost}",
        proofs=(log.proof(at),) if at else (),
        advice="start once without the argument, and compare",
        source=source,
    )


def _said_by(log: EngineLog, fact: Fact, known: Known) -> str:
    if not fact.ranks:
        return ""
    layout = _layout(log, known)
    return f", say {len(fact.ranks)} of {log.world or (layout.gpus if layout else '?')} ranks"


def _several(log: EngineLog, known: Known) -> bool:
    layout = _layout(log, known)
    return layout is not None and layout.gpus > 1


def _layout(log: EngineLog, known: Known) -> Layout | None:
    """The log's own; where the log does not say, the one that was asked for, if that is of several cards."""
    ranks = _ranks(log)
    if ranks:
        return Layout(tp=ranks)
    return known.layout if known.layout is not None and known.layout.gpus > 1 else None


def _ranks(log: EngineLog) -> int | None:
    """Ranks that share a layer: what the engine was told, else all there are."""
    told = log.setting("tensor_parallel_size") or log.asked.get("tp_size")
    return int(told) if told.isdecimal() and len(told) < 6 else log.world


def _cost(log: EngineLog, known: Known) -> tuple[str, str]:
    """What a step pays, by published timings; the sentence says what is missing where it cannot be said."""
    layout = _layout(log, known)
    missing = [n for n, v in (("model", known.model), ("card", known.gpu), ("number of ranks", layout)) if v is None]
    if known.model is None or known.gpu is None or layout is None:
        return f"What that costs is not known without the {' and the '.join(missing)}.", ""
    try:
        link = interconnect_for(known.gpu, known.interconnect)
        workload = Workload(layout=layout, batch=graphs(log).per_request)
        found = [c for c in step_collectives(known.model, workload, link) if c.operation == "all-reduce"]
    except SublightError as error:
        return f"What that costs is not known: {error.asked}: {error.found}.", ""
    if not found:
        return "What that costs is not known: no all-reduce follows from this layout.", ""
    return _priced(found, link, "" if _ranks(log) else f", as {layout} was asked for and the log does not say")


def _priced(found: list[Collective], link: Interconnect, layout: str) -> tuple[str, str]:
    calls, one = sum(c.calls for c in found), found[0]
    each = f"{show_count(calls)} all-reduces a step of {show_count(one.payload_bytes)} B at batch 1{layout}"
    if one.nccl_s.value is None or one.best_s.value is None:
        return f"{each}; what one takes over {link.name} is not known: {one.nccl_s.note or one.best_s.note}.", ""
    nccl, best = sum(c.calls * c.nccl_s.known for c in found), sum(c.calls * c.best_s.known for c in found)
    text = (
        f"{each}: NCCL {show_time(one.nccl_s.known)} each, {show_time(nccl)} a step; best published over {link.name} "
        f"{show_time(one.best_s.known)}, {show_time(best)} a step: {show_time(nccl - best)} between them."
    )
    return text, one.best_s.source or one.nccl_s.source
