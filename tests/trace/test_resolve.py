"""Kernels that share a name, told apart by their place in the layer: two small layers written by hand."""

import pytest

from sublight.trace.classify import classify
from sublight.trace.columns import can_make, weight_bits
from sublight.trace.plan import LayerPlan, Plan, Product
from sublight.trace.resolve import Event, resolve

NVJET = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"
SPLIT = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT"
REDUCE = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasLt::cublasSplitKParams<float>)"
ATTENTION = "void sm90::fwd::sparse_attn_fwd_kernel<sm90::fwd::KernelTemplate<576, false>>(Params)"
MOE = "void marlin_moe_wna16::Marlin<1125899906909960l, 562949953487106l>(int4 const*)"
DENSE = "void marlin::Marlin<1125899906909960l, 562949953487106l>(int4 const*)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NORM = "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)"


def event(name: str, grid: tuple[int, int, int] | None = None, lane: int = 0) -> Event:
    return Event(name, classify(name), lane, grid)


def layer(*, moe: bool) -> LayerPlan:
    half = [
        Product("attn.qkv_a", 2624, 16, "before"),
        Product("attn.q_b", 2048, 16, "before"),
        Product("attn.absorb_v", 2048, 16, "after"),
        Product("attn.o", 6144, 16, "after"),
    ]
    if not moe:
        return LayerPlan(
            "attn.core", (*half, Product("mlp.dense", 3072, 4, "mlp"), Product("mlp.dense", 6144, 4, "mlp"))
        )
    mlp = [
        Product("moe.router", 256, 16, "mlp"),
        Product("moe.experts", 512, 4, "mlp"),
        Product("moe.experts", 6144, 4, "mlp"),
        Product("moe.shared", 512, 4, "mlp"),
        Product("moe.shared", 6144, 4, "mlp"),
    ]
    return LayerPlan("attn.core", (*half, *mlp))


PLAN = Plan((layer(moe=False), layer(moe=True)), (Product("head", 19360, 16, "end"),))
STEP = [
    (event(NCCL), "comm.embedding"),
    (event(NORM), "norms"),
    (event(SPLIT, (4, 33, 1)), "attn.qkv_a"),
    (event(REDUCE), "attn.qkv_a"),
    (event(NVJET, (4, 8, 1)), "attn.q_b"),
    (event(ATTENTION, (1, 1, 1)), "attn.core"),
    (event(NVJET, (4, 8, 1)), "attn.absorb_v"),
    (event(NVJET, (4, 24, 1)), "attn.o"),
    (event(NCCL), "comm.attention"),
    (event(NORM), "norms"),
    (event(DENSE, (132, 1, 1)), "mlp.dense"),
    (event("triton_poi_fused_mul_silu_slice_0"), "mlp.dense"),
    (event(DENSE, (132, 1, 1)), "mlp.dense"),
    (event(NCCL), "comm.mlp"),
    (event(SPLIT, (4, 33, 1)), "attn.qkv_a"),
    (event(REDUCE), "attn.qkv_a"),
    (event(NVJET, (4, 8, 1)), "attn.q_b"),
    (event(ATTENTION, (1, 1, 1)), "attn.core"),
    (event(NVJET, (4, 8, 1)), "attn.absorb_v"),
    (event(NVJET, (4, 24, 1)), "attn.o"),
    (event(NCCL), "comm.attention"),
    (event(SPLIT, (4, 4, 1)), "moe.router"),
    (event(DENSE, (132, 1, 1), lane=1), "moe.shared"),
    (event(REDUCE), "moe.router"),
    (event(MOE, (132, 1, 1)), "moe.experts"),
    (event("void vllm::act_and_mul_kernel<c10::BFloat16>(c10::BFloat16*)"), "moe.experts"),
    (event(DENSE, (132, 1, 1), lane=1), "moe.shared"),
    (event(MOE, (396, 1, 1)), "moe.experts"),
    (event(NCCL), "comm.mlp"),
    (event("nvjet_sm90_tst_192x8_64x4_2x1_v_bz_TNT", (2, 51, 1)), "head"),
    (event("never_heard_of_this_kernel"), "unknown"),
]


def test_every_kernel_of_two_layers() -> None:
    resolved = resolve([e for e, _ in STEP], PLAN)
    assert resolved.why == ""
    assert resolved.rows == [row for _, row in STEP]


def test_without_a_plan_names_decide_and_gemms_stay_unknown() -> None:
    rows = resolve([e for e, _ in STEP], None).rows
    by_name = {"attn.core", "moe.experts", "norms", "unknown", "comm.embedding", "comm.attention", "comm.mlp"}
    assert set(rows) <= by_name
    assert rows[2] == rows[7] == "unknown"


def test_a_plan_of_another_model_says_why_it_does_not_fit() -> None:
    resolved = resolve([e for e, _ in STEP], Plan((layer(moe=False),), ()))
    assert resolved.why == "attention runs 2 times in the step, and the model has it in 1 layer"
    assert resolved.rows[2] == "unknown"


def test_a_kernel_that_plans_attention_once_is_no_layer() -> None:
    prepare = event("void flash::prepare_varlen_num_blocks_kernel<1, true>(int)")
    assert prepare.known.row == "attn.core"
    resolved = resolve([prepare, *(e for e, _ in STEP)], PLAN)
    assert resolved.rows[1:] == [row for _, row in STEP]


@pytest.mark.parametrize(
    ("name", "grid", "columns", "can"),
    [
        (NVJET, (4, 8, 1), 2048, True),  # 32 tiles of 64
        (NVJET, (4, 8, 1), 4096, False),
        (SPLIT, (4, 4, 1), 256, True),  # 4 tiles, 4 splits
        (SPLIT, (4, 4, 1), 160, True),  # 3 tiles in a cluster of 4
        ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_TNT", (2, 63, 1), 2624, True),  # 41 tiles, 42 in pairs, 3 splits
        ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_TNT", (2, 63, 1), 160, False),
        ("nvjet_sm90_tst_384x8_64x4_2x1_v_bz_TNT", (2, 66, 1), 151936, None),  # persistent: more tiles than blocks
        ("_w8a8_block_fp8_matmul", (40, 1, 1), 5120, True),
        ("marlin::Marlin", (132, 1, 1), 3072, None),
        (NVJET, None, 2048, None),
    ],
)
def test_columns_told_by_grid_and_name(
    name: str, grid: tuple[int, int, int] | None, columns: int, can: bool | None
) -> None:
    assert can_make(name, grid, columns) is can


@pytest.mark.parametrize(
    ("name", "bits"), [(DENSE, 4), ("_w8a8_block_fp8_matmul", 8), (NVJET, 16), ("cutlass_kernel", None)]
)
def test_weight_bits(name: str, bits: int | None) -> None:
    assert weight_bits(name) == bits


def rows_of(*names: str) -> list[str]:
    return resolve([event(name) for name in names], None).rows


def test_without_a_plan_attention_tells_messages_apart() -> None:
    """Products that nobody places: the first message comes before any, then attention's and the MLP's take turns."""
    layer = (NVJET, ATTENTION, NVJET, NCCL, NVJET, NVJET, NCCL)
    assert [row for row in rows_of(NCCL, *layer, *layer) if row.startswith("comm.")] == [
        "comm.embedding", "comm.attention", "comm.mlp", "comm.attention", "comm.mlp"
    ]  # fmt: skip


def test_messages_that_nothing_places_keep_their_own_name() -> None:
    assert rows_of(NVJET, NCCL, NVJET, NCCL) == ["unknown", "", "unknown", ""]
