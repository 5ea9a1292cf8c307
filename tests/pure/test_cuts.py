"""Tensor parallelism through a group that shares a scale: which degrees split one, and what padding costs."""

from typing import Any

import pytest

from sublight.facts.model import Model, build_model, read_model
from sublight.facts.workload import Layout, Workload
from sublight.limits.cuts import WidthCut, cut_findings, width_cuts


def experts(model: Model, tp: int) -> WidthCut:
    cuts = [c for c in width_cuts(model, Layout(tp=tp)) if "expert" in c.module and "shared" not in c.module]
    assert len(cuts) == 1
    return cuts[0]


def of_width(width: int, quant: dict[str, Any]) -> Model:
    """Qwen3 with experts of this width; only the widths matter here."""
    config = {
        "model_type": "qwen3_moe", "hidden_size": 1024, "vocab_size": 1024, "num_hidden_layers": 1, "head_dim": 64,
        "num_attention_heads": 16, "num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2,
        "moe_intermediate_size": width, "torch_dtype": "bfloat16",
    }  # fmt: skip
    return build_model(config, quant, name="made-up", source="test")


NVFP4 = {
    "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*", "*.gate"]}
}


# Width, ranks, channels of one, whether a group of 16 is split, what kernels in steps of 64 pad to.
@pytest.mark.parametrize(
    ("width", "tp", "on_rank", "splits", "padded"),
    [
        (1856, 2, 928, False, 960),
        (1856, 4, 464, False, 512),
        (1856, 8, 232, True, 256),
        (704, 2, 352, False, 384),
        (704, 4, 176, False, 192),
        (704, 8, 88, True, 128),
        (640, 4, 160, False, 192),
        (640, 8, 80, False, 128),
        (2048, 8, 256, False, 256),
    ],
)
def test_nvfp4_widths(width: int, tp: int, on_rank: float, splits: bool, padded: int) -> None:
    cut = experts(of_width(width, NVFP4), tp)
    assert (cut.on_rank, cut.splits, cut.padded, cut.group) == (on_rank, splits, padded, 16)
    # 4.5 bits for each padded value of a [1024, width] matrix.
    assert cut.padding_bytes == (padded - on_rank) * 1024 * 4.5 / 8


@pytest.mark.parametrize(("tp", "splits"), [(1, None), (2, False), (4, True), (8, True)])
def test_gpt_oss_in_groups_of_32(tp: int, splits: bool | None) -> None:
    model = read_model("gpt-oss-120b")
    if splits is None:
        assert width_cuts(model, Layout()) == []
        return
    cut = experts(model, tp)
    assert (cut.width, cut.group, cut.on_rank, cut.splits) == (2880, 32, 2880 / tp, splits)


def test_a_split_is_an_error_that_names_what_works() -> None:
    found = list(cut_findings(of_width(1856, NVFP4), Workload(layout=Layout(tp=8))))
    assert [f.level for f in found] == ["error"]
    assert "1856/8 = 232 splits a group of 16" in found[0].text
    assert "the busiest rank then reads 240 (3.4 % more of it" in found[0].text
    assert "--ep 8 or a tensor-parallel degree of 1, 2, 4" in found[0].text


def test_experts_dealt_out_whole_are_not_cut() -> None:
    assert width_cuts(of_width(1856, NVFP4), Layout(tp=8, ep=8)) == []


def test_more_ranks_than_key_heads_repeat_a_head_and_split_nothing() -> None:
    """FP8 in 128x128 tiles: eight key heads of 64 on sixteen ranks stay whole heads, half a tile each."""
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    config = {
        "model_type": "qwen3_moe", "hidden_size": 1024, "vocab_size": 1024, "num_hidden_layers": 1, "head_dim": 128,
        "num_attention_heads": 16, "num_key_value_heads": 4, "num_experts": 16, "num_experts_per_tok": 2,
        "moe_intermediate_size": 2048, "torch_dtype": "bfloat16", "quantization_config": fp8,
    }  # fmt: skip
    cuts = width_cuts(build_model(config, None, name="made-up", source="test"), Layout(tp=16))
    keys = next(c for c in cuts if c.module.endswith("k_proj"))
    assert (keys.ranks, keys.on_rank, keys.splits) == (4, 128, False)
    down = next(c for c in cuts if c.module.endswith("down_proj"))
    assert (down.on_rank, down.splits) == (128, False)
    # 1536 channels over 8 ranks are one and a half tiles.
    tp8 = {c.module.rsplit(".", 1)[1]: c for c in width_cuts(read_model("qwen3-235b-a22b-fp8"), Layout(tp=8))}
    assert (tp8["down_proj"].on_rank, tp8["down_proj"].splits) == (192, True)
    assert (tp8["gate_proj"].on_rank, tp8["gate_proj"].splits) == (192, True)
