"""Decode batches without a CUDA graph: switched off, above the largest captured, or beside the grid of sizes."""

from collections.abc import Iterator

from sublight.audit.log.choices import Graphs, graphs, nested
from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.record import EngineLog, FactKind
from sublight.facts.published import launch_costs
from sublight.units import show_percent

_FLAG = {"vllm": "--enforce-eager", "sglang": "--disable-cuda-graph"}
_SIZES = {"vllm": "cudagraph_capture_sizes", "sglang": "the captured batch sizes (--cuda-graph-bs)"}
_LIMIT = {"vllm": "--max-num-seqs", "sglang": "--max-running-requests"}


def graph_findings(log: EngineLog, _known: Known) -> Iterator[LogFinding]:
    off = list(_switched_off(log))
    yield from off
    if not off:
        yield from _beyond(log, graphs(log))
    yield from _seen(log, asked_off=bool(off))


def _switched_off(log: EngineLog) -> Iterator[LogFinding]:
    said = [f for f in log.of(FactKind.GRAPH_OFF) if f.get("phase") != "prefill"]
    eager = _asked_eager(log)
    mode = _mode_off(log)
    if not said and not eager and not mode:
        return
    low, high = launch_costs().eager_s()
    reason = said[0].get("reason") if said else (f"{eager} is set" if eager else mode)
    at = log.config.at or log.asked.at
    proofs = [log.proof(f) for f in said] or ([log.proof(at)] if at else [])
    by_flag = bool(eager) or "enforce_eager" in reason
    yield LogFinding(
        id="graphs-off",
        level="warn",
        subject="CUDA graphs",
        text=f"decode runs without CUDA graphs: {reason}. Each kernel is launched from the host, "
        f"{low.known * 1e6:.2g} to {high.known * 1e6:.2g} us apiece, and a step of a mixture-of-experts model has "
        "hundreds to thousands of them.",
        proofs=tuple(proofs),
        advice=f"remove {_FLAG[log.engine]}" if by_flag else "remove what switches them off, and compare",
        source=low.source,
    )


def _asked_eager(log: EngineLog) -> str:
    names = ("enforce_eager",) if log.engine == "vllm" else ("disable_cuda_graph", "disable_decode_cuda_graph")
    return next((n for n in names if log.setting(n) == "True"), "")


def _mode_off(log: EngineLog) -> str:
    """The mode of CUDA graphs, where it says that decoding has none."""
    if log.engine == "vllm":
        return "cudagraph_mode is NONE" if "NONE" in nested(log, "compilation_config", "cudagraph_mode") else ""
    off = nested(log, "cuda_graph_config", "decode", "backend") == "disabled"
    return "cuda_graph_config.decode.backend is disabled" if off else ""


def _beyond(log: EngineLog, plan: Graphs) -> Iterator[LogFinding]:
    """The largest batch that may run against the largest that has a graph."""
    batch, most = plan.largest_batch, plan.most_running
    if batch is None or most is None or batch >= most:
        return
    tokens = most * plan.per_request
    around = [size for size in plan.sizes if size < tokens][-2:] + [size for size in plan.sizes if size >= tokens][:1]
    beside = bool(plan.sizes) and plan.sizes[-1] >= tokens  # the grid goes on, but misses the limit
    if beside:
        text = f"the limit of {tokens} tokens a step is not in the capture list (..., {', '.join(map(str, around))})"
        text = text.replace(" tokens a step", " requests") if plan.per_request == 1 else text
    else:
        text = f"max captured decode batch {batch}, max running {most}"
    without = "without a graph of the whole step, at most in pieces" if beside and plan.piecewise else "eager"
    drafts = (
        f" With drafts a request takes {plan.per_request} tokens a step, so that {most} requests are {tokens} tokens."
        if plan.per_request > 1
        else ""
    )
    yield LogFinding(
        id="limit-beside-the-grid" if beside else "batches-beyond-graphs",
        level="warn",
        subject="CUDA graphs",
        text=f"{text}: batches {batch + 1}..{most} run {without}.{drafts} A server that gets that full stays so, "
        "because slow steps keep it full.",
        proofs=tuple(dict.fromkeys(log.proof(at) for at in (plan.at, plan.running_at) if at is not None)),
        advice=f"add {tokens if log.engine == 'vllm' else most} to {_SIZES[log.engine]}"
        + (f", or set {_LIMIT[log.engine]} {batch}" if batch else ""),
    )


def _seen(log: EngineLog, asked_off: bool) -> Iterator[LogFinding]:
    """Decode steps that the log shows to have run eager."""
    steps = log.of(FactKind.DECODE)
    eager = [f for f in steps if f.get("graph") == "False"]
    if not eager:
        return
    count, total = sum(f.times for f in eager), sum(f.times for f in steps)
    batches = sorted({int(f.get("batch")) for f in eager})
    span = str(batches[0]) if len(batches) == 1 else f"{batches[0]}..{batches[-1]}"
    captured = sorted({int(f.get("batch")) for f in steps if f.get("graph") == "True"})
    beside = f" Batches up to {captured[-1]} ran as a graph." if captured else ""
    yield LogFinding(
        id="decode-ran-eager",
        level="info" if asked_off else "warn",
        subject="CUDA graphs",
        text=f"{count} of {total} decode lines ({show_percent(count / total)}) say cuda graph: False, "
        f"at batch {span}.{beside}",
        proofs=(log.proof(eager[0]),),
        advice="" if asked_off else "the captured sizes against the batches above",
    )
