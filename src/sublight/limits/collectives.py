"""Which messages a step sends between ranks, and how long published measurements say they take."""

from typing import NamedTuple

import msgspec

from sublight.facts.interconnect import Interconnect, collective_time
from sublight.facts.model import Model
from sublight.facts.workload import Workload
from sublight.limits.ops import Runs, stage_runs
from sublight.records import Evidence, Figure

_HIDDEN_BYTES = 2  # hidden states travel in BF16
_LOGIT_BYTES = 4  # engines gather whole shards of FP32 logits
# A rank's best candidate is a value and an index, and greedy sampling needs no more from it: a floor sends no more.
_CANDIDATE_BYTES = 8

# Rows that leave a partial sum on every rank, by what is reduced together: shared and routed experts are summed first,
# a dense MLP beside experts (Gemma-4) is normalised apart from them and so reduced apart.
_ATTENTION_ENDS = (("attn.o", "linear.out", "mamba.out"),)
_MLP_ENDS = (("mlp.dense",), ("moe.experts", "moe.shared"))


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of message of the step.

    Attributes:
        id: its row.
        operation: "all-reduce", "all-gather", "reduce-scatter", "send".
        calls: how many a step.
        payload_bytes: of one rank and call.
        gpus: ranks that take part.
        best_s, nccl_s: of one call, from published measurements; not known where there are none.
        best_rule, nccl_rule: which measurement, and what was added to it.
    """

    id: str
    operation: str
    calls: int
    payload_bytes: int
    gpus: int
    best_s: Figure
    nccl_s: Figure
    best_rule: str
    nccl_rule: str


def step_collectives(
    model: Model, workload: Workload, link: Interconnect | None, call_s: float | None = None
) -> list[Collective]:
    """The collectives of one step.

    Tensor parallelism: an all-reduce after the embedding and after each half of each layer, an all-gather of logits
    (of each rank's candidates).
    Data-parallel attention: an all-gather before and a reduce-scatter after each MLP instead (with all-reduces inside
    an attention group of several ranks). Pipeline stages hand over hidden state and residual.

    Args:
        link: what connects the GPUs; None for a single one.
        call_s: the time of one call as the user gives it, for every operation and payload.
    """
    layout = workload.layout
    if layout.gpus == 1:
        return []
    found: dict[tuple[str, int], Collective] = {}
    for message in _all_messages(model, workload):
        if not message.calls or message.gpus == 1:
            continue
        key = (message.id, message.payload)
        if key in found:
            found[key] = msgspec.structs.replace(found[key], calls=found[key].calls + message.calls)
        else:
            found[key] = _timed(message, link, call_s)
    return list(found.values())


class _Message(NamedTuple):
    """One kind of message of a stage, `payload` bytes of each rank; and what engines send through NCCL in its place."""

    id: str
    operation: str
    calls: int
    payload: int
    gpus: int
    nccl: tuple[str, int] | None = None


def _all_messages(model: Model, workload: Workload) -> list[_Message]:
    messages = _messages(model, workload, stage_runs(model, workload, "main"), workload.tokens)
    if workload.speculation is not None:
        messages += _messages(model, workload, stage_runs(model, workload, "mtp"), workload.batch)
    return messages


def _messages(model: Model, workload: Workload, runs: Runs, tokens: int) -> list[_Message]:
    layout = workload.layout
    attention = round(_reductions(model, runs.stage, _ATTENTION_ENDS) * runs.in_layers)
    mlp = round(_reductions(model, runs.stage, _MLP_ENDS) * runs.in_layers)
    hidden = tokens * model.hidden * _HIDDEN_BYTES
    if layout.dp > 1:
        group = -(-tokens // layout.dp) * model.hidden * _HIDDEN_BYTES
        # While ranks hold different numbers of tokens, engines reduce a zero-padded buffer of all of them instead
        # (SGLang's DP attention).
        reduced = ("all-reduce", hidden)
        messages = [
            _Message("comm.attention", "all-reduce", attention, group, layout.attention_tp),
            _Message("comm.gather", "all-gather", mlp, group, layout.tp, reduced),
            _Message("comm.scatter", "reduce-scatter", mlp, group, layout.tp, reduced),
        ]
    else:
        messages = [
            _Message("comm.embedding", "all-reduce", runs.outside, hidden, layout.tp),
            _Message("comm.attention", "all-reduce", attention, hidden, layout.tp),
            _Message("comm.mlp", "all-reduce", mlp, hidden, layout.tp),
        ]
    shard = tokens * -(-model.vocab // layout.tp) * _LOGIT_BYTES
    candidates = tokens * _CANDIDATE_BYTES
    messages.append(_Message("comm.logits", "all-gather", runs.outside, candidates, layout.tp, ("all-gather", shard)))
    if runs.stage == "main":
        # The residual travels beside the hidden state; the last stage sends nothing on.
        messages.append(_Message("comm.pipeline", "send", layout.pp - 1, 2 * hidden, layout.pp))
    return messages


def _reductions(model: Model, stage: str, ends: tuple[tuple[str, ...], ...]) -> int:
    """How many partial sums a pass through the layers leaves, one for each layer and group of rows that it has."""
    ours = [t for t in model.tensors if t.stage == stage]
    return sum(len({layer for t in ours if t.row in rows for layer in t.layers}) for rows in ends)


def _timed(message: _Message, link: Interconnect | None, call_s: float | None) -> Collective:
    if call_s is not None:
        given = Figure(call_s, Evidence.GIVEN, source="--allreduce-us")
        best, nccl, best_rule, nccl_rule = given, given, "as given, whatever the payload", "as given"
    elif link is None:
        raise ValueError("several GPUs need something between them")
    else:
        fastest = collective_time(link, message.operation, "best", message.gpus, message.payload)
        operation, payload = message.nccl or (message.operation, message.payload)
        by_nccl = collective_time(link, operation, "nccl", message.gpus, payload)
        best, nccl, best_rule, nccl_rule = fastest.seconds, by_nccl.seconds, fastest.rule, by_nccl.rule
    return Collective(
        id=message.id,
        operation=message.operation,
        calls=message.calls,
        payload_bytes=message.payload,
        gpus=message.gpus,
        best_s=best,
        nccl_s=nccl,
        best_rule=best_rule,
        nccl_rule=nccl_rule,
    )
