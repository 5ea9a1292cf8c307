"""Multi-head latent attention with routed and shared experts: DeepSeek-V2/V3/R1/V3.2, Kimi-K2, GLM-5, GLM-4.7-Flash.

Shapes from transformers, modeling_deepseek_v2.py, modeling_deepseek_v3.py, modeling_glm4_moe_lite.py and
modeling_glm_moe_dsa.py; the released checkpoints keep one matrix per expert. `head_dim` is not read: in GLM-5 it
repeats the rotary part and in GLM-5.2 the other part.
"""

from collections.abc import Sequence

from sublight.facts.families import parts
from sublight.facts.families.deepseek_moe import experts, read_moe
from sublight.facts.families.placement import moe_layers
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory, Moe
from sublight.facts.tensors import Cut

# 128 FP8 values and one FP32 scale for each key of the indexer: the layout that SGLang and vLLM both cache
# (sglang nsa/index_buf_accessor.py, vllm indexer_k_quant_and_cache).
_INDEX_SCALE_BYTES = 4


def deepseek(fields: Fields, inventory: Inventory) -> None:
    """Any DeepSeek-like model: the optional parts (query compression, indexer, MTP) are there when their fields are."""
    parts.ends(fields, inventory)
    layers = list(range(inventory.layers))
    indexed = _indexed_layers(fields, inventory)
    _attention(fields, inventory, layers, indexed)
    parts.two_norms(inventory, layers)

    sparse = moe_layers(fields, inventory) if "n_routed_experts" in fields else []
    dense = sorted(set(layers) - set(sparse))
    if dense:
        parts.gated_mlp(inventory, "mlp", fields.size("intermediate_size"), dense, "mlp.dense", "dense")
    if sparse:
        inventory.moe = read_moe(fields, len(sparse))
        experts(fields, inventory, inventory.moe, sparse)
        _mtp(fields, inventory, inventory.moe, bool(indexed))


def _indexed_layers(fields: Fields, inventory: Inventory) -> list[int]:
    """Layers with a DSA indexer of their own; the others of a "shared" model reuse the picks of one before."""
    if "index_topk" not in fields:
        return []
    types = fields.names("indexer_types", inventory.layers)
    if types is None:
        return list(range(inventory.layers))
    unknown = set(types) - {"full", "shared"}
    if unknown:
        raise fields.error(f"indexer_types holds {sorted(unknown)}", '"full" or "shared" for each layer')
    full = [i for i, kind in enumerate(types) if kind == "full"]
    if len(full) < inventory.layers:
        inventory.note(
            "info",
            "indexer",
            f"{len(full)} of {inventory.layers} layers have their own; "
            "the others reuse its picks, and still read only those",
        )
    return full


def _attention(fields: Fields, inventory: Inventory, layers: Sequence[int], indexed: Sequence[int]) -> None:
    hidden = inventory.hidden
    heads = fields.size("num_attention_heads")
    inventory.heads, inventory.kv_heads = heads, 1
    nope, rope = fields.size("qk_nope_head_dim"), fields.size("qk_rope_head_dim")
    value, latent = fields.size("v_head_dim"), fields.size("kv_lora_rank")
    rank = fields.size("q_lora_rank", default=0, least=0)
    bias = fields.flag("attention_bias")
    by_head = Cut(0, heads)

    def attn(name: str) -> str:
        return inventory.layer(f"self_attn.{name}")

    if rank:
        inventory.matrix(attn("q_a_proj"), (rank, hidden), "attn.qkv_a", "attention", layers=layers, bias=bias)
        inventory.norm("self_attn.q_a_layernorm", rank, layers)
        inventory.matrix(
            attn("q_b_proj"), (heads * (nope + rope), rank), "attn.q_b", "attention", layers=layers, cut=by_head
        )
    else:
        inventory.matrix(
            attn("q_proj"), (heads * (nope + rope), hidden), "attn.q_b", "attention", layers=layers, cut=by_head
        )
    inventory.matrix(
        attn("kv_a_proj_with_mqa"), (latent + rope, hidden), "attn.qkv_a", "attention", layers=layers, bias=bias
    )
    inventory.norm("self_attn.kv_a_layernorm", latent, layers)
    # One tensor in the checkpoint, [heads x (nope + value), latent]; decode uses its two halves apart, the key half
    # before attention and the value half after it, so that attention runs on the latent itself.
    for row, width in (("attn.absorb_k", nope), ("attn.absorb_v", value)):
        inventory.matrix(
            attn("kv_b_proj"),
            (heads * width, latent),
            row,
            "attention",
            layers=layers,
            cut=by_head,
            leaf=f"weight[{row[-1]}]",
        )
    inventory.matrix(
        attn("o_proj"), (hidden, heads * value), "attn.o", "attention", layers=layers, cut=Cut(1, heads), bias=bias
    )
    top_k = fields.size("index_topk") if "index_topk" in fields else None
    inventory.cache(
        row="attn.core",
        kind="latent",
        layers=tuple(layers),
        heads=1,
        values_per_head=latent + rope,
        latent_split=(latent, rope),
        query_heads=heads,
        flops_per_head=2 * (latent + rope + latent),
        top_k=top_k,
    )
    if indexed:
        _indexer(fields, inventory, indexed, rank)


def _indexer(fields: Fields, inventory: Inventory, layers: Sequence[int], rank: int) -> None:
    """The lightning indexer of DSA: small projections, one cached key a token, scores over the whole context."""
    heads, size = fields.size("index_n_heads"), fields.size("index_head_dim")
    if not rank:
        raise fields.error(
            "it has an indexer and no q_lora_rank, which the indexer's queries come from", "its q_lora_rank"
        )

    def indexer(name: str) -> str:
        return inventory.layer(f"self_attn.indexer.{name}")

    inventory.matrix(indexer("wq_b"), (heads * size, rank), "indexer.q", "attention", layers=layers)
    inventory.matrix(indexer("wk"), (size, inventory.hidden), "indexer.k", "attention", layers=layers)
    inventory.norm("self_attn.indexer.k_norm", size, layers, bias=True)
    inventory.matrix(
        indexer("weights_proj"), (heads, inventory.hidden), "indexer.k", "attention", layers=layers, fixed=True
    )
    inventory.cache(
        row="indexer.scores",
        kind="index",
        layers=tuple(layers),
        heads=1,
        values_per_head=size,
        bytes_per_value=(size + _INDEX_SCALE_BYTES) / size,
        query_heads=heads,
        flops_per_head=2 * size,
    )


def _mtp(fields: Fields, inventory: Inventory, moe: Moe, indexed: bool) -> None:
    """Multi-token prediction: whole layers after the last, fed with the embedding and the hidden state side by side."""
    count = fields.size("num_nextn_predict_layers", "num_mtp_layers", default=0, least=0)
    if not count:
        return
    layers = list(range(inventory.layers, inventory.layers + count))
    with inventory.mtp(modules=count):
        _attention(fields, inventory, layers, layers if indexed else [])
        parts.two_norms(inventory, layers)
        experts(fields, inventory, moe, layers)
        parts.next_token_input(inventory, layers)
