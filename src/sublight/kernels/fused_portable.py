"""A layer of experts in Triton as the catalogue sees it: two declarations, and the numbers they are compiled with.

"fused-triton" decodes weights to the type of the activations, and so runs wherever Triton does, for any number of
tokens. "fused-triton-fp4" hands NVFP4 codes and scales of both operands to the FP4 units of Blackwell.

This module imports neither torch nor triton.
"""

from collections.abc import Mapping

from sublight.kernels.catalogue import COMPILED, Kernel, Limits
from sublight.kernels.problem import Problem
from sublight.kernels.shared_memory import Tile, deepest_stages

_HERE = "sublight.kernels.fused_portable"
_FP4_UNITS = ("sm_100", "sm_103", "sm_120", "sm_121")
_ACTIVATIONS = ("swiglu", "swiglu-oai", "geglu", "relu2")

PORTABLE = Kernel(
    name="fused-triton",
    op="fused_moe",
    statuses=dict.fromkeys(("sm_80", "sm_86", "sm_89", *_FP4_UNITS), COMPILED) | {"sm_90": "run on NVIDIA H200"},
    traits={
        "weight_format": ("nvfp4", "mxfp4", "fp8-block", "bf16"),
        "activation_format": ("bf16", "fp16", "nvfp4"),
        "activation": _ACTIVATIONS,
        "routing": ("given",),
        "global_scale": ("none", "expert", "projection"),
        "expert_bias": ("no", "yes"),
    },
    steps={"hidden_size": 64, "intermediate_size": 64},
    loader="sublight.kernels.fused_triton_layer:prepare_portable",
    configure=f"{_HERE}:configure_portable",
)
NATIVE = Kernel(
    name="fused-triton-fp4",
    op="fused_moe",
    statuses=dict.fromkeys(_FP4_UNITS, COMPILED),
    traits=PORTABLE.traits | {"weight_format": ("nvfp4",), "activation_format": ("nvfp4",)},
    steps=PORTABLE.steps,
    priority=1,
    loader="sublight.kernels.fused_triton_layer:prepare_native",
    configure=f"{_HERE}:configure_native",
)


def configure_portable(problem: Problem, limits: Limits) -> Mapping[str, int]:
    """Tiles for the most tokens of a call, and what fewer are planned with. Raises KernelError where none fits."""
    return plan(problem, limits.sm_count or 0, limits.shared_memory_bytes or 0) | {"target": int(limits.target[3:])}


def configure_native(problem: Problem, limits: Limits) -> Mapping[str, int]:
    """The same for FP4 units: those of sm_100 and sm_103 take 128 rows of weights, 16 of pairs, and four warps."""
    least = 128 if limits.target in ("sm_100", "sm_103") else 32
    return plan(problem, limits.sm_count or 0, limits.shared_memory_bytes or 0, native=True, least_rows=least)


def plan(
    problem: Problem, sm_count: int, shared_memory_bytes: int, *, native: bool = False, least_rows: int = 32
) -> dict[str, int]:
    """Rows of pairs that a block takes: about as many as an expert has. Rows of weights: as many as leave every
    multiprocessor some blocks. The rest is what was fastest on an H200 at these sizes.

    Raises:
        KernelError: not one stage fits into a block's shared memory.
    """
    sizes, traits = problem.dimensions(), problem.traits()
    everyone = sizes["num_experts"] * sizes["expert_ranks"]
    pairs = sizes["tokens"] * sizes["top_k"]
    mean = pairs / everyone
    hit = sizes["num_experts"] * (1 - (1 - 1 / everyone) ** pairs)
    # Weights are decoded again for every block of an expert, so nearly all experts should have one.
    tall = least_rows == 128
    block_m = next((rows for rows in (16 if tall else 8, 16, 32) if mean + 1.5 * mean**0.5 <= rows), 64)
    blocks = max(hit, sizes["num_experts"] * mean / block_m)
    chunk = next((size for size in (128, 1024) if pairs <= size), 8192)
    numbers = {
        "BLOCK_M": block_m,
        "CHUNK": chunk,
        "GROUP_WARPS": 16 if chunk == 8192 else 4,
        "LEAST_N": least_rows,
        "sm_count": sm_count,
        "shared_memory_bytes": shared_memory_bytes,
    }
    for product, width, depth, parts, wanted in (
        ("UP", sizes["intermediate_size"], sizes["hidden_size"], 1 if traits["activation"] == "relu2" else 2, 2),
        ("DOWN", sizes["hidden_size"], sizes["intermediate_size"], 1, 4),
    ):
        heights = [rows for rows in (128, 64, 32) if least_rows <= rows]
        rows = next((rows for rows in heights if blocks * width * parts / rows >= wanted * sm_count), heights[-1])
        # A tile of FP8 weights that shares a scale has 128 columns.
        long = product == "UP" and block_m <= 16 and depth % 256 == 0 and traits["weight_format"] != "fp8-block"
        block_k = 256 if long else 64 if block_m >= 32 and product == "DOWN" and not native else 128
        # In the pipeline, a value of the input takes about four times the bytes of a weight.
        four_bits = traits["weight_format"] in ("nvfp4", "mxfp4")
        tile = Tile(
            block_m=block_m * (4 if four_bits and not native else 1),
            block_n=rows,
            block_k=block_k,
            stages=4 if rows == 32 else 3,
            bytes_per_value=0.5625 if four_bits else 1 if traits["weight_format"] == "fp8-block" else 2,
        )
        if block_m >= 32:
            warps = 8 if product == "UP" and block_m == 64 else 4
        elif product == "UP":
            few = blocks * width * parts / rows < sm_count
            warps = 4 if rows == 128 or few else 2
        else:
            warps = 4 if tall else 2
        numbers |= {
            f"{product}_N": rows // parts,
            f"{product}_K": block_k,
            f"{product}_WARPS": warps,
            f"{product}_STAGES": deepest_stages(tile, shared_memory_bytes),
        }
    return numbers
