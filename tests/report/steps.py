"""Timelines that several tests show: a few events to reckon with, and a made-up step with the shape of GLM-5."""

import random

from sublight.report.blocks import Band, EventRow, Events, Mark, Timeline

_GEMM = "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm10<cutlass::gemm::kernel::GemmUniversal<"
_FP4 = "cutlass::gemm::collective::CollectiveMma<MainloopSm120TmaWarpSpecializedBlockScaled, tuple<128,128,128>>>>>"
_TRITON = "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_"

ROWS = (
    EventRow("token embedding", "embedding"),
    EventRow("norms", "norms and elementwise"),
    EventRow("elementwise", "norms and elementwise"),
    EventRow("q_a + kv_a", "attention projections"),
    EventRow("q_b", "attention projections"),
    EventRow("W_UK absorb", "attention projections"),
    EventRow("W_UV", "attention projections"),
    EventRow("o_proj", "attention projections"),
    EventRow("indexer wq_b", "indexer"),
    EventRow("indexer wk + weights", "indexer"),
    EventRow("index scores + top-k", "indexer"),
    EventRow("attention", "attention core"),
    EventRow("dense MLP", "dense MLP"),
    EventRow("router", "router"),
    EventRow("routed experts", "routed experts"),
    EventRow("shared expert", "shared experts"),
    EventRow("lm_head", "lm_head"),
    EventRow("sampling", "sampling"),
    EventRow("all-reduce after attention", "collectives"),
    EventRow("all-reduce after MLP/MoE", "collectives"),
    EventRow("unknown", "unknown", known=False),
)

# Row, name, microseconds; the second stream runs beside the experts.
_ATTENTION = (
    ("norms", _TRITON + "0", 3.1),
    ("q_a + kv_a", _GEMM + "bf16_t, tuple<64,64,256>>>", 29.6),
    ("q_a + kv_a", "splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>", 4.2),
    ("norms", _TRITON + "3", 2.9),
    ("q_b", _GEMM + "bf16_t, tuple<64,128,128>>>", 12.5),
    ("elementwise", "rotary_embedding_kernel<c10::BFloat16, true>", 3.4),
    ("elementwise", "concat_and_cache_mla_kernel<__nv_bfloat16, uint8_t>", 3.0),
    ("W_UK absorb", "nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 9.8),
    ("indexer wq_b", _GEMM + "float_e4m3_t, tuple<64,64,128>>>", 6.1),
    ("indexer wk + weights", "nvjet_tst_64x8_64x16_1x1_h_bz_TNT", 5.0),
    ("elementwise", "per_token_group_quant_8bit_kernel<c10::BFloat16>", 2.7),
    ("index scores + top-k", "deep_gemm::sm120_fp8_paged_mqa_logits<64, 128, false>", 14.0),
    ("index scores + top-k", "fast_topk_transform_kernel<2048>", 11.5),
    ("attention", "flash_fwd_splitkv_mla_fp8_sparse_kernel<Flash_fwd_mla_traits>", 38.0),
    ("attention", "flash_fwd_mla_combine_kernel<bfloat16_t, float, 512>", 4.4),
    ("W_UV", "nvjet_tst_64x8_64x16_4x1_v_bz_TNN", 9.2),
    ("o_proj", _GEMM + "bf16_t, tuple<128,64,128>>>", 20.5),
    ("all-reduce after attention", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 52.0),
)
_EXPERTS = (
    ("norms", _TRITON + "7", 3.2),
    ("router", "nvjet_tst_64x8_64x16_1x1_v_bz_NNT", 6.8),
    ("router", "moe_fused_gate_kernel<__nv_bfloat16, 256, 1>", 5.1),
    ("elementwise", "count_and_sort_expert_tokens_kernel<int>", 3.6),
    ("elementwise", "cvt_fp16_to_fp4<__nv_bfloat16, false>", 4.0),
    ("routed experts", _GEMM + _FP4, 58.0),
    ("elementwise", "silu_and_mul_scaled_fp4_experts_quantize<bf16>", 5.2),
    ("routed experts", _GEMM + _FP4 + "::down", 41.0),
    ("elementwise", "moe_sum_reduce_kernel<bf16, 8>", 4.8),
    ("elementwise", "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16>>", 2.2),
    ("all-reduce after MLP/MoE", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 53.0),
)
_SHARED = (
    ("elementwise", "cvt_fp16_to_fp4<__nv_bfloat16, false>", 3.8),
    ("shared expert", _GEMM + _FP4 + "::shared", 21.0),
    ("elementwise", "silu_and_mul_kernel<c10::BFloat16>", 2.6),
    ("shared expert", _GEMM + _FP4 + "::shared_down", 14.0),
)
_DENSE = (
    ("norms", _TRITON + "7", 3.2),
    ("dense MLP", _GEMM + "bf16_t, gate_up>>", 61.0),
    ("elementwise", "silu_and_mul_kernel<c10::BFloat16>", 3.0),
    ("dense MLP", _GEMM + "bf16_t, down>>", 34.0),
    ("all-reduce after MLP/MoE", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 53.0),
)
_COPY = (("elementwise", "Memcpy DtoD (Device -> Device)", 1.4),) * 8
_FOREIGN = (("unknown", "kernel_7f3a", 9.0),)
_START = (("token embedding", "vectorized_gather_kernel<16, long>", 4.0),)
_END = (
    ("norms", _TRITON + "9", 3.3),
    ("lm_head", _GEMM + "bf16_t, lm_head>>", 182.0),
    ("sampling", "flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024>", 46.0),
)


def glm5_step(seed: int = 5) -> Timeline:
    """A step of 97 ms, of which a good half is idle: launched kernel by kernel, with the host behind."""
    rng = random.Random(seed)
    events: list[tuple[float, float, int, str, str]] = []
    now = 41.0

    def run(kernels: tuple[tuple[str, str, float], ...], lane: int, start: float, pause: float) -> float:
        for row, name, typical in kernels:
            duration = round(typical * rng.uniform(0.93, 1.12), 3)
            events.append((round(start, 3), duration, lane, row, name))
            start += duration + pause * rng.uniform(0.4, 1.6)
        return start

    bands = []
    now = run(_START, 0, now, 9.0)
    for layer in range(78):
        began = now
        # The host is late in the middle of the step, as if it collected its garbage.
        late = 46.0 if 38 <= layer < 43 else 16.0
        now = run(_ATTENTION + _COPY[: 3 + layer % 4], 0, now, late)
        if layer < 3:
            now = run(_DENSE, 0, now, late)
        else:
            run(_SHARED, 1, now + 30.0, 6.0)
            now = run(_EXPERTS + _COPY[: 4 + layer % 3] + (_FOREIGN if layer % 6 == 0 else ()), 0, now, late)
        bands.append(Band(round(began, 3), round(now, 3), f"layer {layer}"))
    now = run(_END, 0, now, 20.0)
    events.sort()
    starts, durations, lanes, rows, kernels = zip(*events, strict=True)
    names = tuple(dict.fromkeys(kernels))
    numbers = {name: index for index, name in enumerate(names)}
    places = {row.name: index for index, row in enumerate(ROWS)}
    return Timeline(
        "One decode step, rank 0",
        "us",
        round(now + 60.0, 3),
        ("stream 7", "stream 23 (shared experts)"),
        ROWS,
        names,
        Events(starts, durations, lanes, tuple(places[row] for row in rows), tuple(numbers[name] for name in kernels)),
        tuple(bands),
        (Mark(bands[3].start, "first layer of experts"),),
        "Step 212 of 412, the median one. Bands are layers, told apart by their first norm.",
    )


STEP = glm5_step()
SMALL = Timeline(
    "One step",
    "us",
    40.0,
    ("stream 7", "stream 9"),
    (EventRow("q_b", "projections"), EventRow("o_proj", "projections"), EventRow("all-reduce", "collectives")),
    ("gemm_a", "gemm_b", "nccl"),
    Events((0.0, 10.0, 12.0, 20.0), (10.0, 10.0, 8.0, 5.0), (0, 0, 1, 0), (0, 1, 2, 2), (0, 1, 2, 2)),
    (Band(0.0, 20.0, "layer 0"), Band(20.0, 40.0, "layer 1")),
    (Mark(20.0, "a layer ends"),),
    "Median.",
)
