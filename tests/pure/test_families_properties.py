"""One field changed: the rows that depend on it move by exactly what they should, and no other row moves.

The closed forms are written from the shapes in the reference models, apart from the code they test. In them `c` is the
configuration before the change and `d` how much the field grew; sizes are small and drawn at random.
"""

from collections.abc import Callable
from types import SimpleNamespace as C
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pure.test_families_totals import build

Config = dict[str, Any]
Moved = dict[str, int]


def rows(config: Config, stage: str = "main") -> Moved:
    found: Moved = {}
    for t in build(config).tensors:
        if t.stage == stage:
            found[t.row] = found.get(t.row, 0) + t.parameters
    return found


size = st.integers(3, 40)
few = st.integers(1, 4)
flag = st.booleans()


@st.composite
def attention(draw: st.DrawFn) -> Config:
    kv = draw(few)
    return {
        "hidden_size": draw(size),
        "num_hidden_layers": draw(st.integers(4, 8)),
        "vocab_size": draw(size),
        "num_attention_heads": kv * draw(few),
        "num_key_value_heads": kv,
        "head_dim": draw(size),
    }


def family(model_type: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Config]:
    return st.tuples(attention(), st.fixed_dictionaries({"model_type": st.just(model_type), **fields})).map(
        lambda both: both[0] | both[1]
    )


latent = {
    "q_lora_rank": size,
    "kv_lora_rank": size,
    "qk_nope_head_dim": size,
    "qk_rope_head_dim": size,
    "v_head_dim": size,
}
deepseek_experts = {
    "n_routed_experts": st.integers(4, 9),
    "num_experts_per_tok": st.integers(1, 4),
    "n_shared_experts": st.integers(0, 2),
    "moe_intermediate_size": size,
    "first_k_dense_replace": st.integers(0, 3),
    "intermediate_size": size,
}
qwen_experts = {
    "num_experts": st.integers(9, 14),
    "num_experts_per_tok": st.integers(1, 4),
    "moe_intermediate_size": size,
}


@st.composite
def delta_heads(draw: st.DrawFn) -> Config:
    keys = draw(few)
    return {
        "linear_num_key_heads": keys,
        "linear_num_value_heads": keys * draw(few),
        "linear_key_head_dim": draw(size),
        "linear_value_head_dim": draw(size),
        "linear_conv_kernel_dim": draw(few),
        "full_attention_interval": draw(st.integers(2, 4)),
        "shared_expert_intermediate_size": draw(size),
    }


@st.composite
def mamba(draw: st.DrawFn) -> Config:
    groups = draw(few)
    kinds = draw(st.lists(st.sampled_from("ME*-"), min_size=1, max_size=6))
    return {
        "num_hidden_layers": None,
        "hybrid_override_pattern": "".join([*kinds, *"ME*-"]),
        "n_groups": groups,
        "mamba_num_heads": groups * draw(few),
        "mamba_head_dim": draw(size),
        "ssm_state_size": draw(size),
        "conv_kernel": draw(few),
        "n_routed_experts": draw(st.integers(4, 9)),
        "num_experts_per_tok": draw(few),
        "n_shared_experts": draw(st.integers(1, 2)),
        "moe_intermediate_size": draw(size),
        "moe_latent_size": draw(size),
        "moe_shared_expert_intermediate_size": draw(size),
        "intermediate_size": draw(size),
    }


FAMILIES: dict[str, st.SearchStrategy[Config]] = {
    "llama": family("llama", intermediate_size=size, attention_bias=flag, mlp_bias=flag),
    "deepseek": family("deepseek_v3", **latent, **deepseek_experts),
    "indexed": family(
        "deepseek_v32",
        **latent,
        **deepseek_experts,
        index_n_heads=few,
        index_head_dim=size,
        index_topk=size,
    ),
    "glm4": family("glm4_moe", **deepseek_experts, attention_bias=flag, use_qk_norm=flag),
    "qwen3": family("qwen3_moe", **qwen_experts),
    "hybrid": st.tuples(family("qwen3_next", **qwen_experts), delta_heads()).map(lambda both: both[0] | both[1]),
    "gpt_oss": family(
        "gpt_oss",
        num_local_experts=st.integers(4, 9),
        num_experts_per_tok=few,
        intermediate_size=size,
        sliding_window=size,
    ),
    "minimax": family(
        "minimax_m2",
        num_local_experts=st.integers(4, 9),
        num_experts_per_tok=few,
        intermediate_size=size,
        use_qk_norm=flag,
        use_routing_bias=flag,
    ),
    "llama4": family(
        "llama4_text",
        num_local_experts=st.integers(4, 9),
        num_experts_per_tok=few,
        intermediate_size=size,
        intermediate_size_mlp=size,
        interleave_moe_layer_step=st.integers(1, 3),
    ),
    "nemotron": st.tuples(family("nemotron_h"), mamba()).map(lambda both: both[0] | both[1]),
    "gemma": family(
        "gemma4_text",
        layer_types=st.just(None),
        sliding_window=size,
        global_head_dim=size,
        intermediate_size=size,
        enable_moe_block=st.just(True),
        num_experts=st.integers(4, 9),
        top_k_experts=few,
        moe_intermediate_size=size,
        attention_k_eq_v=flag,
    ),
}


def gemma_layers(config: Config) -> Config:
    """Sliding layers with a full one every third and last."""
    count = config["num_hidden_layers"]
    types = ["full_attention" if i % 3 == 2 or i == count - 1 else "sliding_attention" for i in range(count)]
    return config | {"layer_types": types}


def sparse(c: C) -> int:
    """MoE layers after a dense prefix."""
    return int(c.num_hidden_layers - c.first_k_dense_replace)


def linear(c: C) -> int:
    return int(c.num_hidden_layers - c.num_hidden_layers // c.full_attention_interval)


def kinds(c: C, letter: str) -> int:
    return str(c.hybrid_override_pattern).count(letter)


def full(c: C) -> int:
    return list(c.layer_types).count("full_attention")


def global_projections(c: C) -> int:
    """Heads of q, k and v in a global layer; v has none of its own where it comes from the keys."""
    return int(c.num_attention_heads + c.num_key_value_heads * (1 if c.attention_k_eq_v else 2))


def qkv(c: C) -> int:
    return int((c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim)


def ends(c: C, d: int) -> Moved:
    """What every model's width is part of: embedding and head."""
    return {"embedding": c.vocab_size * d, "head": c.vocab_size * d}


# (family, field) -> (step of the change, rows that move)
Case = tuple[Callable[[C], int], Callable[[C, int], Moved]]


def one(_: C) -> int:
    return 1


def kv(c: C) -> int:
    return int(c.num_key_value_heads)


CASES: dict[tuple[str, str], Case] = {
    ("llama", "vocab_size"): (one, lambda c, d: {"embedding": d * c.hidden_size, "head": d * c.hidden_size}),
    ("llama", "intermediate_size"): (
        one,
        lambda c, d: {"mlp.dense": c.num_hidden_layers * d * (3 * c.hidden_size + 2 * c.mlp_bias)},
    ),
    ("llama", "num_attention_heads"): (
        kv,
        lambda c, d: {
            "attn.qkv": c.num_hidden_layers * d * c.head_dim * (c.hidden_size + c.attention_bias),
            "attn.o": c.num_hidden_layers * d * c.head_dim * c.hidden_size,
        },
    ),
    ("llama", "head_dim"): (
        one,
        lambda c, d: {
            "attn.qkv": c.num_hidden_layers
            * (c.num_attention_heads + 2 * c.num_key_value_heads)
            * d
            * (c.hidden_size + c.attention_bias),
            "attn.o": c.num_hidden_layers * c.num_attention_heads * d * c.hidden_size,
        },
    ),
    ("llama", "num_hidden_layers"): (
        one,
        lambda c, d: {
            "attn.qkv": d * qkv(c) * (c.hidden_size + c.attention_bias),
            "attn.o": d * c.hidden_size * (c.num_attention_heads * c.head_dim + c.attention_bias),
            "mlp.dense": d
            * (3 * c.hidden_size * c.intermediate_size + c.mlp_bias * (2 * c.intermediate_size + c.hidden_size)),
            "norms": d * 2 * c.hidden_size,
        },
    ),
    ("llama", "hidden_size"): (
        one,
        lambda c, d: {
            **ends(c, d),
            "attn.qkv": c.num_hidden_layers * qkv(c) * d,
            "attn.o": c.num_hidden_layers * (c.num_attention_heads * c.head_dim + c.attention_bias) * d,
            "mlp.dense": c.num_hidden_layers * (3 * c.intermediate_size + c.mlp_bias) * d,
            "norms": (2 * c.num_hidden_layers + 1) * d,
        },
    ),
    ("deepseek", "q_lora_rank"): (
        one,
        lambda c, d: {
            "attn.qkv_a": c.num_hidden_layers * d * c.hidden_size,
            "attn.q_b": c.num_hidden_layers * d * c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim),
            "norms": c.num_hidden_layers * d,
        },
    ),
    ("indexed", "q_lora_rank"): (
        one,
        lambda c, d: {
            "attn.qkv_a": c.num_hidden_layers * d * c.hidden_size,
            "attn.q_b": c.num_hidden_layers * d * c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim),
            "indexer.q": c.num_hidden_layers * d * c.index_n_heads * c.index_head_dim,
            "norms": c.num_hidden_layers * d,
        },
    ),
    ("indexed", "index_n_heads"): (
        one,
        lambda c, d: {
            "indexer.q": c.num_hidden_layers * d * c.index_head_dim * c.q_lora_rank,
            "indexer.k": c.num_hidden_layers * d * c.hidden_size,
        },
    ),
    ("indexed", "index_topk"): (one, lambda c, d: {}),
    ("deepseek", "kv_lora_rank"): (
        one,
        lambda c, d: {
            "attn.qkv_a": c.num_hidden_layers * d * c.hidden_size,
            "attn.absorb_k": c.num_hidden_layers * d * c.num_attention_heads * c.qk_nope_head_dim,
            "attn.absorb_v": c.num_hidden_layers * d * c.num_attention_heads * c.v_head_dim,
            "norms": c.num_hidden_layers * d,
        },
    ),
    ("deepseek", "v_head_dim"): (
        one,
        lambda c, d: {
            "attn.absorb_v": c.num_hidden_layers * c.num_attention_heads * d * c.kv_lora_rank,
            "attn.o": c.num_hidden_layers * c.num_attention_heads * d * c.hidden_size,
        },
    ),
    ("deepseek", "qk_rope_head_dim"): (
        one,
        lambda c, d: {
            "attn.qkv_a": c.num_hidden_layers * d * c.hidden_size,
            "attn.q_b": c.num_hidden_layers * d * c.num_attention_heads * c.q_lora_rank,
        },
    ),
    ("deepseek", "head_dim"): (one, lambda c, d: {}),
    ("deepseek", "n_routed_experts"): (
        one,
        lambda c, d: {
            "moe.router": sparse(c) * d * (c.hidden_size + 1),
            "moe.experts": sparse(c) * d * 3 * c.moe_intermediate_size * c.hidden_size,
        },
    ),
    ("deepseek", "n_shared_experts"): (
        one,
        lambda c, d: {"moe.shared": sparse(c) * d * 3 * c.moe_intermediate_size * c.hidden_size},
    ),
    ("deepseek", "intermediate_size"): (
        one,
        lambda c, d: {"mlp.dense": c.first_k_dense_replace * 3 * d * c.hidden_size},
    ),
    ("glm4", "moe_intermediate_size"): (
        one,
        lambda c, d: {
            "moe.experts": sparse(c) * c.n_routed_experts * 3 * d * c.hidden_size,
            "moe.shared": sparse(c) * c.n_shared_experts * 3 * d * c.hidden_size,
        },
    ),
    ("glm4", "hidden_size"): (
        one,
        lambda c, d: {
            **ends(c, d),
            "attn.qkv": c.num_hidden_layers * qkv(c) * d,
            "attn.o": c.num_hidden_layers * c.num_attention_heads * c.head_dim * d,
            "mlp.dense": c.first_k_dense_replace * 3 * c.intermediate_size * d,
            "moe.router": sparse(c) * c.n_routed_experts * d,
            "moe.experts": sparse(c) * c.n_routed_experts * 3 * c.moe_intermediate_size * d,
            "moe.shared": sparse(c) * c.n_shared_experts * 3 * c.moe_intermediate_size * d,
            "norms": (2 * c.num_hidden_layers + 1) * d,
        },
    ),
    ("glm4", "num_hidden_layers"): (
        one,
        lambda c, d: {
            "attn.qkv": d * qkv(c) * (c.hidden_size + c.attention_bias),
            "attn.o": d * c.num_attention_heads * c.head_dim * c.hidden_size,
            "moe.router": d * c.n_routed_experts * (c.hidden_size + 1),
            "moe.experts": d * c.n_routed_experts * 3 * c.moe_intermediate_size * c.hidden_size,
            "moe.shared": d * c.n_shared_experts * 3 * c.moe_intermediate_size * c.hidden_size,
            "norms": d * (2 * c.hidden_size + 2 * c.use_qk_norm * c.head_dim),
        },
    ),
    ("qwen3", "num_experts"): (
        one,
        lambda c, d: {
            "moe.router": c.num_hidden_layers * d * c.hidden_size,
            "moe.experts": c.num_hidden_layers * d * 3 * c.moe_intermediate_size * c.hidden_size,
        },
    ),
    ("qwen3", "num_experts_per_tok"): (one, lambda c, d: {}),
    ("qwen3", "vocab_size"): (one, lambda c, d: {"embedding": d * c.hidden_size, "head": d * c.hidden_size}),
    ("hybrid", "linear_value_head_dim"): (
        one,
        lambda c, d: {
            "linear.in": linear(c) * 2 * c.linear_num_value_heads * d * c.hidden_size,
            "linear.state": linear(c) * d * (c.linear_num_value_heads * c.linear_conv_kernel_dim + 1),
            "linear.out": linear(c) * c.linear_num_value_heads * d * c.hidden_size,
        },
    ),
    ("hybrid", "linear_key_head_dim"): (
        one,
        lambda c, d: {
            "linear.in": linear(c) * 2 * c.linear_num_key_heads * d * c.hidden_size,
            "linear.state": linear(c) * 2 * c.linear_num_key_heads * d * c.linear_conv_kernel_dim,
        },
    ),
    ("hybrid", "linear_num_value_heads"): (
        lambda c: int(c.linear_num_key_heads),
        lambda c, d: {
            "linear.in": linear(c) * (2 * c.linear_value_head_dim + 2) * d * c.hidden_size,
            "linear.state": linear(c) * d * (c.linear_value_head_dim * c.linear_conv_kernel_dim + 2),
            "linear.out": linear(c) * c.linear_value_head_dim * d * c.hidden_size,
        },
    ),
    ("hybrid", "linear_conv_kernel_dim"): (
        one,
        lambda c, d: {
            "linear.state": linear(c)
            * d
            * (2 * c.linear_num_key_heads * c.linear_key_head_dim + c.linear_num_value_heads * c.linear_value_head_dim)
        },
    ),
    ("hybrid", "num_attention_heads"): (
        kv,
        lambda c, d: {
            "attn.qkv": (c.num_hidden_layers - linear(c)) * 2 * d * c.head_dim * c.hidden_size,
            "attn.o": (c.num_hidden_layers - linear(c)) * d * c.head_dim * c.hidden_size,
        },
    ),
    ("hybrid", "shared_expert_intermediate_size"): (
        one,
        lambda c, d: {"moe.shared": c.num_hidden_layers * 3 * d * c.hidden_size},
    ),
    ("gpt_oss", "num_local_experts"): (
        one,
        lambda c, d: {
            "moe.router": c.num_hidden_layers * d * (c.hidden_size + 1),
            "moe.experts": c.num_hidden_layers
            * d
            * (3 * c.intermediate_size * c.hidden_size + 2 * c.intermediate_size + c.hidden_size),
        },
    ),
    ("gpt_oss", "intermediate_size"): (
        one,
        lambda c, d: {"moe.experts": c.num_hidden_layers * c.num_local_experts * d * (3 * c.hidden_size + 2)},
    ),
    ("gpt_oss", "num_attention_heads"): (
        kv,
        lambda c, d: {
            "attn.qkv": c.num_hidden_layers * d * c.head_dim * (c.hidden_size + 1),
            "attn.core": c.num_hidden_layers * d,
            "attn.o": c.num_hidden_layers * d * c.head_dim * c.hidden_size,
        },
    ),
    ("gpt_oss", "hidden_size"): (
        one,
        lambda c, d: {
            **ends(c, d),
            "attn.qkv": c.num_hidden_layers * qkv(c) * d,
            "attn.o": c.num_hidden_layers * (c.num_attention_heads * c.head_dim + 1) * d,
            "moe.router": c.num_hidden_layers * c.num_local_experts * d,
            "moe.experts": c.num_hidden_layers * c.num_local_experts * (3 * c.intermediate_size + 1) * d,
            "norms": (2 * c.num_hidden_layers + 1) * d,
        },
    ),
    ("gpt_oss", "sliding_window"): (one, lambda c, d: {}),
    ("minimax", "head_dim"): (
        one,
        lambda c, d: {
            "attn.qkv": c.num_hidden_layers * (c.num_attention_heads + 2 * c.num_key_value_heads) * d * c.hidden_size,
            "attn.o": c.num_hidden_layers * c.num_attention_heads * d * c.hidden_size,
            "norms": c.use_qk_norm * c.num_hidden_layers * (c.num_attention_heads + c.num_key_value_heads) * d,
        },
    ),
    ("minimax", "num_local_experts"): (
        one,
        lambda c, d: {
            "moe.router": c.num_hidden_layers * d * (c.hidden_size + c.use_routing_bias),
            "moe.experts": c.num_hidden_layers * d * 3 * c.intermediate_size * c.hidden_size,
        },
    ),
    ("llama4", "intermediate_size"): (
        one,
        lambda c, d: {
            "moe.experts": c.num_hidden_layers
            // c.interleave_moe_layer_step
            * c.num_local_experts
            * 3
            * d
            * c.hidden_size,
            "moe.shared": c.num_hidden_layers // c.interleave_moe_layer_step * 3 * d * c.hidden_size,
        },
    ),
    ("llama4", "intermediate_size_mlp"): (
        one,
        lambda c, d: {
            "mlp.dense": (c.num_hidden_layers - c.num_hidden_layers // c.interleave_moe_layer_step)
            * 3
            * d
            * c.hidden_size
        },
    ),
    ("nemotron", "ssm_state_size"): (
        one,
        lambda c, d: {
            "mamba.in": kinds(c, "M") * 2 * c.n_groups * d * c.hidden_size,
            "mamba.state": kinds(c, "M") * 2 * c.n_groups * d * (c.conv_kernel + 1),
        },
    ),
    ("nemotron", "mamba_head_dim"): (
        one,
        lambda c, d: {
            "mamba.in": kinds(c, "M") * 2 * c.mamba_num_heads * d * c.hidden_size,
            # The convolution with its bias, and the output norm.
            "mamba.state": kinds(c, "M") * c.mamba_num_heads * d * (c.conv_kernel + 2),
            "mamba.out": kinds(c, "M") * c.mamba_num_heads * d * c.hidden_size,
        },
    ),
    ("nemotron", "mamba_num_heads"): (
        lambda c: int(c.n_groups),
        lambda c, d: {
            "mamba.in": kinds(c, "M") * d * (2 * c.mamba_head_dim + 1) * c.hidden_size,
            "mamba.state": kinds(c, "M") * d * (c.mamba_head_dim * (c.conv_kernel + 2) + 3),
            "mamba.out": kinds(c, "M") * d * c.mamba_head_dim * c.hidden_size,
        },
    ),
    ("nemotron", "moe_latent_size"): (
        one,
        lambda c, d: {
            "moe.latent": kinds(c, "E") * 2 * d * c.hidden_size,
            "moe.experts": kinds(c, "E") * c.n_routed_experts * 2 * c.moe_intermediate_size * d,
        },
    ),
    ("nemotron", "moe_intermediate_size"): (
        one,
        lambda c, d: {"moe.experts": kinds(c, "E") * c.n_routed_experts * 2 * d * c.moe_latent_size},
    ),
    ("nemotron", "moe_shared_expert_intermediate_size"): (
        one,
        lambda c, d: {"moe.shared": kinds(c, "E") * c.n_shared_experts * 2 * d * c.hidden_size},
    ),
    ("nemotron", "hidden_size"): (
        one,
        lambda c, d: {
            **ends(c, d),
            "attn.qkv": kinds(c, "*") * qkv(c) * d,
            "attn.o": kinds(c, "*") * c.num_attention_heads * c.head_dim * d,
            "mamba.in": kinds(c, "M")
            * (2 * c.mamba_num_heads * c.mamba_head_dim + 2 * c.n_groups * c.ssm_state_size + c.mamba_num_heads)
            * d,
            "mamba.out": kinds(c, "M") * c.mamba_num_heads * c.mamba_head_dim * d,
            "mlp.dense": kinds(c, "-") * 2 * c.intermediate_size * d,
            "moe.router": kinds(c, "E") * c.n_routed_experts * d,
            "moe.latent": kinds(c, "E") * 2 * c.moe_latent_size * d,
            "moe.shared": kinds(c, "E") * c.n_shared_experts * 2 * c.moe_shared_expert_intermediate_size * d,
            "norms": (len(c.hybrid_override_pattern) + 1) * d,
        },
    ),
    ("gemma", "global_head_dim"): (
        one,
        lambda c, d: {
            "attn.qkv": full(c) * global_projections(c) * d * c.hidden_size,
            "attn.o": full(c) * c.num_attention_heads * d * c.hidden_size,
            "norms": full(c) * 2 * d,
        },
    ),
    ("gemma", "head_dim"): (
        one,
        lambda c, d: {
            "attn.qkv": (c.num_hidden_layers - full(c))
            * (c.num_attention_heads + 2 * c.num_key_value_heads)
            * d
            * c.hidden_size,
            "attn.o": (c.num_hidden_layers - full(c)) * c.num_attention_heads * d * c.hidden_size,
            "norms": (c.num_hidden_layers - full(c)) * 2 * d,
        },
    ),
    ("gemma", "num_experts"): (
        one,
        lambda c, d: {
            "moe.router": c.num_hidden_layers * d * (c.hidden_size + 1),
            "moe.experts": c.num_hidden_layers * d * 3 * c.moe_intermediate_size * c.hidden_size,
        },
    ),
    ("gemma", "intermediate_size"): (
        one,
        lambda c, d: {"mlp.dense": c.num_hidden_layers * 3 * d * c.hidden_size},
    ),
    # The head is the embedding, and is not counted again.
    ("gemma", "vocab_size"): (one, lambda c, d: {"embedding": d * c.hidden_size}),
}


@pytest.mark.parametrize(("name", "field"), CASES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_only_dependent_rows_move(name: str, field: str, data: st.DataObject) -> None:
    config = data.draw(FAMILIES[name])
    if name == "gemma":
        config = gemma_layers(config)
    step, moved = CASES[name, field]
    c = C(**config)
    d = step(c) * data.draw(st.integers(1, 5))
    before, after = rows(config), rows(config | {field: config[field] + d})
    change = {row: after[row] - before.get(row, 0) for row in after if after[row] != before.get(row, 0)}
    assert change == {row: by for row, by in moved(c, d).items() if by}


@settings(max_examples=30, deadline=None)
@given(config=FAMILIES["glm4"], count=st.integers(0, 2))
def test_drafting_layers_cost_a_layer_each_and_leave_the_model_alone(config: Config, count: int) -> None:
    c = C(**config)
    drafting = config | {"num_nextn_predict_layers": count}
    assert rows(drafting) == rows(config)
    layer = {
        "attn.qkv": qkv(c) * (c.hidden_size + c.attention_bias),
        "attn.o": c.num_attention_heads * c.head_dim * c.hidden_size,
        "moe.router": c.n_routed_experts * (c.hidden_size + 1),
        "moe.experts": c.n_routed_experts * 3 * c.moe_intermediate_size * c.hidden_size,
        "moe.shared": c.n_shared_experts * 3 * c.moe_intermediate_size * c.hidden_size,
        "mtp.in": 2 * c.hidden_size**2,
        "norms": 5 * c.hidden_size + 2 * c.use_qk_norm * c.head_dim,
    }
    assert rows(drafting, "mtp") == {row: count * n for row, n in layer.items() if count * n}


@pytest.mark.parametrize("name", ["glm4", "indexed", "hybrid", "nemotron", "gpt_oss"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_token_reads_its_experts_and_everything_else(name: str, data: st.DataObject) -> None:
    """Parameters less the resting experts and the embedding are the active ones, whatever the sizes."""
    model = build(data.draw(FAMILIES[name]))
    assert model.moe is not None
    routed = sum(t.parameters for t in model.main if t.read == "routed experts")
    embedding = sum(t.parameters for t in model.main if t.read == "one row a token")
    resting = routed * (model.moe.experts - model.moe.top_k) / model.moe.experts
    assert model.active_parameters() == pytest.approx(model.parameters() - resting - embedding, rel=1e-12)
