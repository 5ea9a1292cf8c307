"""A small decode written by hand, as the profiler would have written it."""

from collections.abc import Sequence
from typing import Any

# A dense model of two layers, small enough to count.
MODEL = {
    "model_type": "llama",
    "hidden_size": 1024,
    "vocab_size": 4096,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 64,
    "intermediate_size": 2048,
    "torch_dtype": "bfloat16",
}
NVJET = "nvjet_sm90_tst_64x8_64x16_1x1_v_bz_TNT"
FLASH = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloop>>>(int)"
)
NORM = "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)"
SILU = "void vllm::act_and_mul_kernel<c10::BFloat16>(c10::BFloat16*)"
Launch = tuple[str, list[int], float, float]  # name, grid, microseconds, and the gap before it
LAYER: list[Launch] = [
    (NORM, [1, 1, 1], 2.0, 1.0),
    (NVJET, [48, 1, 1], 10.0, 1.0),  # qkv: 3072 columns
    (FLASH, [16, 1, 1], 20.0, 1.0),
    (NVJET, [16, 1, 1], 5.0, 1.0),  # o_proj: 1024 columns
    (NORM, [1, 1, 1], 2.0, 1.0),
    (NVJET, [64, 1, 1], 12.0, 1.0),  # gate and up: 4096 columns
    (SILU, [2, 1, 1], 1.5, 1.0),
    (NVJET, [16, 1, 1], 6.0, 1.0),  # down: 1024 columns
]
STEP: list[Launch] = [
    *LAYER,
    *LAYER,
    (NORM, [1, 1, 1], 2.0, 1.0),
    (NVJET, [64, 1, 1], 8.0, 1.0),  # lm_head: 4096 columns
]
BETWEEN_US = 50.0


def length_us(step: Sequence[Launch]) -> float:
    """From the start of a step to the start of the next."""
    return sum(us + gap for _, _, us, gap in step) - step[0][3] + BETWEEN_US


STEP_US = length_us(STEP)


def kineto(steps: int = 6, *, marks: bool = True, launches: Sequence[Launch] = STEP) -> dict[str, Any]:
    """Steps replayed from one CUDA graph each, with a pause between them."""
    events: list[dict[str, Any]] = []
    at = 1000.0
    for step in range(steps):
        correlation = 100 + step
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 1, "tid": 1, "ts": at - 20,
                       "dur": 5, "args": {"correlation": correlation}})  # fmt: skip
        if marks:
            events.append({"ph": "X", "cat": "user_annotation", "name": f"decode step {step}", "pid": 1, "tid": 1,
                           "ts": at - 25, "dur": 20})  # fmt: skip
        first = True
        for name, grid, us, gap in launches:
            at += 0.0 if first else gap
            first = False
            events.append({
                "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": us,
                "args": {"correlation": correlation, "device": 0, "stream": 7, "grid": grid, "block": [128, 1, 1],
                         "graph node id": len(events)},
            })  # fmt: skip
            at += us
        at += BETWEEN_US
    device = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9, "computeMinor": 0}
    return {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}
