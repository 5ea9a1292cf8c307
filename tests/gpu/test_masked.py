"""The masked layer on a GPU against its reference: products, quantiser, and both with SGLang's argument list."""

import pytest
import torch

from sublight.kernels import grouped_gemm_nt_masked, moe_masked, scaled_fp4_grouped_quantize
from sublight.kernels.agreement import require_agreement
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.swizzle import swizzle, to_masked

pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA GPU here", allow_module_level=True)

NVFP4_TYPES = {"ab_dtype": "float4_e2m1fn", "sf_dtype": "float8_e4m3fn", "sf_vec_size": 16}


def weights(groups: int, rows: int, k: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales as they come, on the GPU."""
    generator = torch.Generator("cuda").manual_seed(seed)
    codes = torch.randint(0, 256, (groups, rows, k // 2), dtype=torch.uint8, device="cuda", generator=generator)
    scales = torch.rand(groups, rows, k // 16, device="cuda", generator=generator) + 0.25
    return codes, scales.to(torch.float8_e4m3fn)


def masks(*rows: int) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int32, device="cuda")


@pytest.mark.parametrize("out", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    ("m", "n", "k", "rows"),
    [
        (1, 64, 64, (1, 0, 1)),
        (16, 4096, 6144, (16, 3, 0, 1)),
        (20, 136, 96, (20, 0)),
        (64, 6144, 2048, (64, 1, 63, 17)),
        (200, 512, 3696 // 32 * 32, (200, 129, 128, 0)),
    ],
)
def test_every_pattern_of_masks(m: int, n: int, k: int, rows: tuple[int, ...], out: str) -> None:
    groups = len(rows)
    a, a_scales = weights(groups, m, k, 1)
    b, b_scales = weights(groups, n, k, 2)
    for group, count in enumerate(rows):
        a_scales.view(torch.uint8)[group, count:] = 0x7F  # stale rows
    alpha = torch.rand(groups, device="cuda") / k
    results = []
    for backend in (None, "reference"):
        c = torch.full((groups, m, n), 77.0, device="cuda").to(getattr(torch, out))
        grouped_gemm_nt_masked(
            (a.permute(1, 2, 0), to_masked(a_scales)),
            (b.permute(1, 2, 0), swizzle(b_scales)),
            c.permute(1, 2, 0),
            masks(*rows),
            **NVFP4_TYPES,  # type: ignore[arg-type]
            c_dtype=out,
            alpha=alpha,
            alpha_dtype="float32",
            backend=backend,
        )
        results.append(c)
    for group, count in enumerate(rows):
        assert bool((results[0][group, count:] == 77).all())
        if count:
            require_agreement(
                f"group {group}", results[0][group, :count], results[1][group, :count].float(), NVFP4.kernel_error
            )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_quantiser_is_the_reference_bit_for_bit(dtype: torch.dtype) -> None:
    a = torch.randn(4, 130, 6144, device="cuda").to(dtype)
    a[0, 1, 16:32] = 0
    mask, scale = masks(130, 0, 1, 77), torch.tensor([300.0, 500.0, 700.0, 1.0], device="cuda")
    got = scaled_fp4_grouped_quantize(a, mask, scale)
    wanted = scaled_fp4_grouped_quantize(a, mask, scale, backend="reference")
    for x, y in zip(got, wanted, strict=True):
        assert torch.equal(x.view(torch.uint8), y.view(torch.uint8))


def test_the_layer() -> None:
    experts, rows, hidden, width = 8, 33, 6144, 2048
    w1, w1_scale = weights(experts, 2 * width, hidden, 3)
    w2, w2_scale = weights(experts, hidden, width, 4)
    x = torch.randn(experts, rows, hidden, device="cuda").bfloat16()
    mask = masks(33, 0, 1, 16, 17, 32, 5, 2)
    first, second = torch.full((experts,), 2688 / 6.0), torch.full((experts,), 60.0)
    arguments = {
        "hidden_states": (x, None),
        "input_global_scale": first.cuda(),
        "w1": w1,
        "w1_blockscale": swizzle(w1_scale),
        "w1_alpha": (1 / (3 * hidden**0.5) / first).cuda(),
        "w2": w2,
        "a2_global_scale": second.cuda(),
        "w2_blockscale": swizzle(w2_scale),
        "w2_alpha": (1 / (3 * width**0.5) / second).cuda(),
        "masked_m": mask,
    }
    got = moe_masked(**arguments)  # type: ignore[arg-type]
    wanted = moe_masked(**arguments, backend="reference")  # type: ignore[arg-type]
    # Where sums in another order round to another bf16, a four-bit activation can fall to the next step.
    require_agreement("the layer", got, wanted.float(), 1e-2)


def test_it_can_be_captured_in_a_graph() -> None:
    a, a_scales = weights(2, 16, 512, 1)
    b, b_scales = weights(2, 256, 512, 2)
    rows = masks(16, 16)
    out = torch.zeros(2, 16, 256, dtype=torch.bfloat16, device="cuda")

    def product() -> None:
        grouped_gemm_nt_masked(
            (a.permute(1, 2, 0), to_masked(a_scales)),
            (b.permute(1, 2, 0), to_masked(b_scales)),
            out.permute(1, 2, 0),
            rows,
            **NVFP4_TYPES,  # type: ignore[arg-type]
            c_dtype="bfloat16",
        )

    product()
    wanted = out.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product()
    rows.copy_(masks(16, 0))  # masks are read on the GPU, when the graph runs
    out.zero_()
    graph.replay()
    assert torch.equal(out[0], wanted[0]) and not bool(out[1].any())
