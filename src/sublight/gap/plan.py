"""From a model and its layout to the plan that tells a trace's products apart."""

from sublight.facts.model import Model
from sublight.facts.tensors import Tensor
from sublight.facts.workload import Layout
from sublight.limits.sharding import heads_on_rank, shape_on_rank
from sublight.rows import ROWS
from sublight.trace.plan import LayerPlan, Place, Plan, Product

# Order in which engines launch the products of a layer's attention half. The indexer's small projection runs beside
# q_a's in vLLM and SGLang, its queries before q_b's.
_BEFORE = ("attn.qkv", "attn.qkv_a", "linear.in", "mamba.in", "indexer.k", "indexer.q", "attn.q_b", "attn.absorb_k")
_AFTER = ("attn.absorb_v", "attn.o", "linear.out", "mamba.out")
_MLP = ("moe.router", "moe.latent", "mlp.dense", "moe.experts", "moe.shared")
_MIXERS = ("attn.core", "linear.state", "mamba.state")


def step_plan(model: Model, layout: Layout, tokens: int = 0) -> Plan:
    """The products of one decode step on one rank, layer by layer; `tokens` that its attention takes, if known."""
    by_layer: dict[int, dict[str, list[Tensor]]] = {}
    mixers: dict[int, str] = {}
    end: list[Tensor] = []
    for tensor in model.main:
        if tensor.read == "never" or not tensor.is_matrix:
            continue
        for layer in tensor.layers:
            by_layer.setdefault(layer, {}).setdefault(tensor.row, []).append(tensor)
        if not tensor.layers and tensor.row == "head":
            end.append(tensor)
    for cache in model.caches:
        if cache.stage == "main" and cache.row in _MIXERS:
            mixers.update(dict.fromkeys(cache.layers, cache.row))
    layers = tuple(
        LayerPlan(mixers.get(layer, ""), _products(by_layer.get(layer, {}), layout)) for layer in range(model.layers)
    )
    products = tuple(Product(t.row, shape_on_rank(t, layout)[0], round(t.format.bits), "end") for t in end)
    return Plan(layers, products, heads_on_rank(model.heads, layout), tokens)


def _products(rows: dict[str, list[Tensor]], layout: Layout) -> tuple[Product, ...]:
    found: list[Product] = []
    places: tuple[tuple[Place, tuple[str, ...]], ...] = (("before", _BEFORE), ("after", _AFTER), ("mlp", _MLP))
    for place, order in places:
        for row in order:
            if row in rows:
                bits = round(max(rows[row], key=lambda t: t.storage.total_bytes).format.bits)
                found += [Product(row, columns, bits, place) for columns in _columns(row, rows[row], layout)]
    return tuple(found)


def _columns(row: str, tensors: list[Tensor], layout: Layout) -> list[int]:
    """Columns of each launch of a row: an MLP makes gate and up in one and down in another, the rest is one launch."""
    shapes = [(t, shape_on_rank(t, layout)) for t in tensors]
    if row in ("mlp.dense", "moe.experts", "moe.shared"):
        inward = sum(s[0] for t, s in shapes if t.cut is None or t.cut.axis == 0)
        outward = next((s[0] for t, s in shapes if t.cut is not None and t.cut.axis == 1), 0)
        return [size for size in (inward, outward) if size]
    if row == "attn.absorb_k":
        # Stored as [heads x nope, latent] and used the other way round: each head's query becomes a latent.
        return [heads_on_rank(t.cut.units, layout) * s[1] for t, s in shapes if t.cut is not None]
    return [sum(s[0] for _, s in shapes)]


assert set(_BEFORE + _AFTER + _MLP) <= set(ROWS)
