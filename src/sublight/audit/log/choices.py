"""What a log says of one subject, whichever engine wrote it and wherever it says so."""

from functools import cache
from pathlib import Path

import msgspec

from sublight.audit.log.echo import inner, whole_numbers
from sublight.audit.log.record import Argument, EngineLog, Fact, FactKind, Sighting

_NAMES = Path(__file__).with_name("names.toml")
AUTO = ("", "auto", "None", "none")


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    same: tuple[str, ...]
    other: dict[str, str]


@cache
def _names() -> _Names:
    return msgspec.toml.decode(_NAMES.read_bytes(), type=_Names)


def flag_value(engine: str, backend: str) -> str:
    """The value of the engine's flag that asks for a MoE backend as its log names it; "" where that is not known."""
    if engine == "sglang":
        return backend
    names = _names()
    return names.other.get(backend) or (backend.lower() if backend.lower() in names.same else "")


def nested(log: EngineLog, *path: str) -> str:
    """A setting inside another: of the engine's own configuration, else of what it was asked for."""
    for echo in (log.config, log.asked):
        arguments: tuple[Argument, ...] = echo.arguments
        value = ""
        for name in path:
            value = next((a.value for a in arguments if a.name == name), "")
            arguments = inner(value)
        if value not in ("", "None"):
            return value
    return ""


def asked_moe_backend(log: EngineLog) -> tuple[str, Sighting | None]:
    """What was asked for the experts, and where the log shows it; "" where it does not show it."""
    if log.engine == "sglang":
        return log.asked.get("moe_runner_backend"), log.asked.at
    resolved = nested(log, "kernel_config", "moe_backend")
    return resolved or log.asked.get("moe_backend"), log.config.at if resolved and log.config.at else log.asked.at


def refused(chosen: Fact) -> list[str]:
    """The candidates in front of the chosen one: the engine tries them in this order."""
    names = [name.strip(" '\"") for name in chosen.get("candidates").split(",")]
    return names[: names.index(chosen.get("backend"))] if chosen.get("backend") in names else []


class Graphs(msgspec.Struct, frozen=True, kw_only=True):
    """What decode batches have a CUDA graph.

    Attributes:
        sizes: the grid, in tokens of a step, ascending; empty where the log does not list it.
        largest: that is captured for a whole decode step; None where it is not known. In vLLM the grid may go on.
        per_request: tokens a request takes a step: one, and each draft.
        most_running: requests at once; None where the log does not say.
        at, running_at: where the log says so.
        piecewise: graphs of the parts between attention cover the batches that have no graph of their own.
    """

    sizes: tuple[int, ...]
    largest: int | None
    per_request: int
    most_running: int | None
    at: Sighting | None
    running_at: Sighting | None
    piecewise: bool = False

    @property
    def largest_batch(self) -> int | None:
        """Requests of the largest batch with a graph."""
        return None if self.largest is None else self.largest // self.per_request


def graphs(log: EngineLog) -> Graphs:
    """Of the model itself; the graphs of a draft model are left out."""
    return _sglang_graphs(log) if log.engine == "sglang" else _vllm_graphs(log)


def _sglang_graphs(log: EngineLog) -> Graphs:
    plans = [f for f in log.of(FactKind.GRAPH_PLAN) if f.get("sizes") and not f.get("phase").startswith("draft")]
    sizes = whole_numbers(f"[{plans[-1].get('sizes')}]") if plans else _asked_sizes(log)
    at = plans[-1].first if plans else log.asked.at
    per_request = next((int(p.get("tokens_per_request")) for p in plans if p.get("tokens_per_request")), 0)
    drafts = log.asked.get("speculative_num_draft_tokens")  # the last accepted token included
    per_request = per_request or (int(drafts) if drafts.isdecimal() else 1) or 1
    running = log.of(FactKind.MOST_RUNNING)
    most = max((int(f.get("requests")) for f in running), default=None)
    running_at = running[0].first if running else log.asked.at
    if most is None and log.asked.get("max_running_requests").isdecimal():
        most = int(log.asked.get("max_running_requests"))
    sizes = tuple(sorted(size * per_request for size in sizes))
    return Graphs(
        sizes=sizes,
        largest=max(sizes, default=None),
        per_request=per_request,
        most_running=most,
        at=at,
        running_at=running_at,
    )


def _asked_sizes(log: EngineLog) -> tuple[int, ...]:
    for path in (("cuda_graph_config", "decode", "bs"), ("cuda_graph_bs_decode",), ("cuda_graph_bs",)):
        sizes = whole_numbers(nested(log, *path))
        if sizes:
            return sizes
    return ()


def _vllm_graphs(log: EngineLog) -> Graphs:
    mode = nested(log, "compilation_config", "cudagraph_mode")
    listed = whole_numbers(nested(log, "compilation_config", "cudagraph_capture_sizes"))
    at = log.config.at or log.asked.at
    per_request = 1 + _drafts(log)
    asked = log.asked.get("max_num_seqs")
    most = int(asked) if asked.isdecimal() else None
    plans = log.of(FactKind.GRAPH_PLAN)
    full = [int(p.get("full_largest")) for p in plans if p.get("full_largest")]
    largest = max(listed, default=None)
    if "FULL" in mode and most is not None:  # whole graphs stop at the most tokens that decoding can have
        largest = max((size for size in listed if size <= most * per_request), default=None)
    if full:
        largest, at = max(full), plans[-1].first
    return Graphs(
        sizes=tuple(sorted(listed)),
        largest=largest,
        per_request=per_request,
        most_running=most,
        at=at,
        running_at=log.asked.at,
        piecewise="PIECEWISE" in mode,
    )


def _drafts(log: EngineLog) -> int:
    """Tokens drafted a step."""
    for name in ("num_spec_tokens", "num_speculative_tokens"):
        text = nested(log, "speculative_config", name)
        if text.isdecimal() and len(text) < 6:
            return int(text)
    return 0
