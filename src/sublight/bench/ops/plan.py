"""From a model and a workload to what is launched for every row, at one rank's shapes. Arithmetic, no torch.

A row of several layers is cut into parts that are alike: same products, same shapes, same formats. What torch has no
kernel for gets the reason instead of a product, and is then a row without a time.
"""

from collections.abc import Iterable

import msgspec

from sublight.facts.formats import Format
from sublight.facts.model import Model
from sublight.facts.tensors import Cache, Tensor
from sublight.facts.workload import Workload
from sublight.limits.ops import step_ops
from sublight.limits.sharding import heads_on_rank, shape_on_rank
from sublight.units import counted

_MLP_ROWS = ("mlp.dense", "moe.shared")
_NO_LIBRARY = {
    "moe.experts": "`sublight bench kernels` times it",
    "indexer.scores": "not in torch: engines call DeepGEMM or kernels of their own",
    "linear.state": "not in torch: engines call flash-linear-attention",
    "mamba.state": "not in torch: engines call mamba-ssm",
}


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of a part does; which product it is decides what runs (`products.py`).

    Attributes:
        product: "linear", "batched", "mlp", "norm", "embedding", "argmax", "attention", or "none".
        rows, columns: of the weight, as stored: outputs and inputs. For attention: tokens read, and size of a head.
        batch: products beside each other (heads); for an MLP its inner width.
        tokens: rows that go in.
        weight_format: name of the format of the weight.
        turned: the weight is used the other way round: [rows, columns] maps rows to columns.
        heads: (query, key and value) heads of attention.
        bytes: of weights, inputs and outputs.
        cold_bytes: of them, what nobody has touched since the last step: weights and caches. Inputs were just written.
        reason: why there is nothing to run.
    """

    product: str
    what: str
    rows: int = 0
    columns: int = 0
    batch: int = 1
    tokens: int = 1
    weight_format: str = "bf16"
    turned: bool = False
    heads: tuple[int, int] = (0, 0)
    bytes: float = 0.0
    cold_bytes: float = 0.0
    reason: str = ""


class RowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A row: launches, and how often a step makes each."""

    id: str
    launches: tuple[tuple[Launch, int], ...]


def step_launches(model: Model, workload: Workload) -> list[RowPlan]:
    """Every row of the step itself, drafting left out."""
    tensors: dict[str, list[Tensor]] = {}
    caches: dict[str, list[Cache]] = {}
    for tensor in model.main:
        if tensor.read != "never":
            tensors.setdefault(tensor.row, []).append(tensor)
    for cache in model.caches:
        if cache.stage == "main":
            caches.setdefault(cache.row, []).append(cache)
    plans = []
    for op in step_ops(model, workload):
        if op.stage != "main":
            continue
        found = _launches(op.id, tensors.get(op.id, []), caches.get(op.id, []), model, workload)
        counted: dict[Launch, int] = {}
        for launch, count in found:
            counted[launch] = counted.get(launch, 0) + count
        plans.append(RowPlan(id=op.id, launches=tuple(counted.items())))
    return plans


def _launches(
    row: str, tensors: list[Tensor], caches: list[Cache], model: Model, workload: Workload
) -> list[tuple[Launch, int]]:
    if row in _NO_LIBRARY:
        return [(_none(row, _NO_LIBRARY[row]), 1)]
    if row == "sampling":
        shard = -(-model.vocab // workload.layout.tp)
        size = float(workload.tokens * shard * 4)
        what = f"argmax of [{workload.tokens}, {shard}] FP32"
        return [
            (Launch(product="argmax", what=what, columns=shard, tokens=workload.tokens, bytes=size, cold_bytes=size), 1)
        ]
    if row == "attn.core":
        return [(_attention(cache, workload), len(cache.layers)) for cache in caches]
    if row == "norms":
        return [(_norm(t, _tokens(t, workload)), t.count) for t in tensors if t.leaf == "weight"]
    if row == "embedding":
        return [(_embedding(t, workload), 1) for t in tensors]
    return [part for layer, of_layer in _by_layer(tensors) for part in _of_layer(row, of_layer, workload, layer)]


def _by_layer(tensors: Iterable[Tensor]) -> list[tuple[int | None, list[Tensor]]]:
    """Matrices of each layer; those outside of layers under None."""
    found: dict[int | None, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.is_matrix:
            for layer in tensor.layers or (None,):
                found.setdefault(layer, []).append(tensor)
    return list(found.items())


def _of_layer(row: str, tensors: list[Tensor], workload: Workload, layer: int | None) -> list[tuple[Launch, int]]:  # noqa: ARG001
    tokens = _tokens(tensors[0], workload)
    if row in _MLP_ROWS:
        return [(_mlp(tensors, workload, tokens), 1)]
    if row in ("attn.absorb_k", "attn.absorb_v"):
        return [(_absorb(t, row, workload, tokens), 1) for t in tensors]
    # Matrices that read the same input are one launch where engines join them: those of one format and input width.
    joined: dict[tuple[str, int], int] = {}
    for tensor in tensors:
        rows, columns = shape_on_rank(tensor, workload.layout)
        key = (tensor.format.name, columns)
        joined[key] = joined.get(key, 0) + rows * tensor.copies
    return [(_linear(rows, columns, name, tensors, tokens), 1) for (name, columns), rows in joined.items()]


def _tokens(tensor: Tensor, workload: Workload) -> int:
    """Rows that this rank takes through a tensor: under data-parallel attention its own sequences' only."""
    owned = tensor.part in ("attention", "shared", "router", "replicated") and workload.layout.dp > 1
    return (workload.sequences_per_rank if owned else workload.batch) * workload.width


def _linear(rows: int, columns: int, name: str, tensors: list[Tensor], tokens: int) -> Launch:
    form = next(t.format for t in tensors if t.format.name == name)
    what = f"[{tokens}, {columns}] x [{rows}, {columns}] {form.title}"
    stored = form.storage((rows, columns)).total_bytes
    moved = stored + 2.0 * tokens * (rows + columns)
    return Launch(
        product="linear",
        what=what,
        rows=rows,
        columns=columns,
        tokens=tokens,
        weight_format=name,
        bytes=moved,
        cold_bytes=stored,
    )


def _mlp(tensors: list[Tensor], workload: Workload, tokens: int) -> Launch:
    shapes = [(t, shape_on_rank(t, workload.layout)) for t in tensors]
    inward = [s for t, s in shapes if t.cut is None or t.cut.axis == 0]
    outward = [s for t, s in shapes if t.cut is not None and t.cut.axis == 1]
    forms = sorted({t.format.name for t in tensors})
    if len(inward) != 2 or len(outward) != 1 or len(forms) != 1:
        return _none("an MLP", "it is not gate, up and down of one format")
    hidden, width = inward[0][1], outward[0][1]
    form = tensors[0].format
    what = f"[{tokens}, {hidden}] to {width} and back, SwiGLU, {form.title}"
    stored = sum(form.storage(s).total_bytes for _, s in shapes)
    moved = stored + 2.0 * tokens * 2 * hidden
    return Launch(
        product="mlp",
        what=what,
        rows=hidden,
        columns=hidden,
        batch=width,
        tokens=tokens,
        weight_format=form.name,
        bytes=moved,
        cold_bytes=stored,
    )


def _absorb(tensor: Tensor, row: str, workload: Workload, tokens: int) -> Launch:
    """A product a head. W_UK is stored [heads x nope, latent] and takes nope to latent; W_UV takes latent to v."""
    rows, latent = shape_on_rank(tensor, workload.layout)
    units = tensor.cut.units if tensor.cut is not None else 1
    heads = heads_on_rank(units, workload.layout)
    each = rows // heads
    turned = row == "attn.absorb_k"
    stored = tensor.format.storage((rows, latent)).total_bytes
    way = f"{each} to {latent}" if turned else f"{latent} to {each}"
    return Launch(
        product="batched",
        what=f"{counted(heads, 'head')}, [{tokens}, {way}] {tensor.format.title}",
        rows=each,
        columns=latent,
        batch=heads,
        tokens=tokens,
        weight_format=tensor.format.name,
        turned=turned,
        bytes=stored + 2.0 * tokens * heads * (each + latent),
        cold_bytes=stored,
    )


def _norm(tensor: Tensor, tokens: int) -> Launch:
    size = tensor.shape[-1]
    return Launch(
        product="norm",
        what=f"RMS norm of [{tokens}, {size}]",
        columns=size,
        tokens=tokens,
        weight_format=tensor.format.name,
        bytes=_plain_bytes(tensor.format, size) + 4.0 * tokens * size,
        cold_bytes=_plain_bytes(tensor.format, size),
    )


def _embedding(tensor: Tensor, workload: Workload) -> Launch:
    rows, columns = shape_on_rank(tensor, workload.layout)
    return Launch(
        product="embedding",
        what=f"{counted(workload.tokens, 'row')} of [{rows}, {columns}] {tensor.format.title}",
        rows=rows,
        columns=columns,
        tokens=workload.tokens,
        weight_format=tensor.format.name,
        bytes=workload.tokens * columns * (_plain_bytes(tensor.format, 1) + 2.0),
        cold_bytes=workload.tokens * columns * _plain_bytes(tensor.format, 1),
    )


def _plain_bytes(form: Format, count: int) -> float:
    return form.bits / 8 * count


def _attention(cache: Cache, workload: Workload) -> Launch:
    if cache.kind != "kv":
        return _none("attention", "a latent cache, not in torch: engines call FlashMLA or FlashInfer")
    if workload.kv_dtype != "bf16":
        return _none(
            "attention", f"a cache in {workload.kv_dtype}, not in torch: engines call FlashInfer or FlashAttention"
        )
    if cache.borrowed:
        return _none("attention", "layers that read another layer's cache are not measured")
    sequences, read = workload.sequences_per_rank, cache.tokens_read(workload.context)
    size = cache.values_per_head // 2
    heads = (heads_on_rank(cache.query_heads, workload.layout), heads_on_rank(cache.heads, workload.layout))
    what = f"{sequences} x {heads[0]} heads over {heads[1]} x {read:,} tokens of {size}"
    stored = 2.0 * sequences * heads[1] * read * size * 2
    moved = stored + 4.0 * sequences * workload.width * heads[0] * size
    return Launch(
        product="attention",
        what=what,
        rows=read,
        columns=size,
        batch=sequences,
        tokens=workload.width,
        heads=heads,
        bytes=moved,
        cold_bytes=stored,
    )


def _none(what: str, reason: str) -> Launch:
    return Launch(product="none", what=what, reason=reason)
