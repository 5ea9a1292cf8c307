"""The masked grouped GEMM in Triton: run by its interpreter, compiled for GPUs that are not here, chosen by target."""

from pathlib import Path

import pytest

from sublight.errors import KernelError
from sublight.facts.gpu import get_gpu
from sublight.kernels.catalogue import COMPILED, Limits
from sublight.kernels.heuristics import choose
from sublight.kernels.masked_portable import configure_decoded, configure_native
from sublight.kernels.problem import GroupedGemmProblem, GroupedQuantiseProblem
from tests.torch.crosscompile import script


def problem(m: int = 8, operands: str = "nvfp4", **change: object) -> GroupedGemmProblem:
    sizes = {"n": 512, "k": 6144, "num_groups": 32, "out_dtype": "bfloat16"} | change
    return GroupedGemmProblem(m=m, operands=operands, **sizes)  # type: ignore[arg-type]


def test_native_units_are_used_where_there_are_some_and_claim_to_have_been_compiled() -> None:
    chosen = {
        card: choose(problem(), get_gpu(card)) for card in ("h200", "b200", "b300", "rtx-pro-6000-server", "gb10")
    }
    assert {card: (choice.kernel.name, choice.status) for card, choice in chosen.items()} == {
        "h200": ("masked-triton", "run on NVIDIA H200"),
        "b200": ("masked-triton-fp4", COMPILED),
        "b300": ("masked-triton-fp4", COMPILED),
        "rtx-pro-6000-server": ("masked-triton-fp4", COMPILED),
        "gb10": ("masked-triton-fp4", COMPILED),
    }
    assert chosen["b200"].reason.endswith("before masked-triton (priority 0 against 1)")
    assert choose(problem(operands="mxfp4"), get_gpu("b200")).kernel.name == "masked-triton-fp4"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"operands": "mxfp4"}, "operands is 'mxfp4', it does nvfp4"),
        ({"out_dtype": "float8_e4m3fn"}, "out_dtype is 'float8_e4m3fn', it does bfloat16, float16, float32"),
        ({"signals": True}, "signals is 'yes', it does no"),
        ({"sm_limit": True}, "sm_limit is 'yes', it does no"),
    ],
)
def test_what_neither_does_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(KernelError, match=f"masked-triton: {why}; masked-triton-fp4: is built for sm_100"):
        choose(problem(**change), get_gpu("h200"))


def test_the_quantiser_is_chosen_for_the_types_that_it_reads() -> None:
    def quantise(in_dtype: str, k: int = 64) -> GroupedQuantiseProblem:
        return GroupedQuantiseProblem(m=8, k=k, num_groups=4, in_dtype=in_dtype, silu=True)

    choice = choose(quantise("bfloat16"), get_gpu("h200"))
    assert (choice.kernel.name, choice.status, choice.configuration) == ("quantise-triton", "run on NVIDIA H200", {})
    with pytest.raises(KernelError, match="quantise-triton: in_dtype is 'float32', it does bfloat16, float16"):
        choose(quantise("float32"), get_gpu("h200"))
    with pytest.raises(KernelError, match="quantise-triton: k 72 is no multiple of 16"):
        choose(quantise("bfloat16", 72), get_gpu("h200"))


def test_tiles_are_no_taller_than_the_groups() -> None:
    card = Limits.of(get_gpu("rtx-pro-6000-server"))
    assert [configure_decoded(problem(m), card)["BLOCK_M"] for m in (1, 16, 17, 64, 500)] == [16, 16, 32, 64, 64]
    assert configure_native(problem(16), card) == {
        "BLOCK_M": 16,
        "BLOCK_N": 128,
        "BLOCK_K": 128,
        "num_warps": 4,
        "num_stages": 3,
    }
    with pytest.raises(KernelError, match="one stage takes 36864 B of 30000 B"):
        configure_decoded(problem(), Limits(target="sm_90", shared_memory_bytes=30000, sm_count=132))


INTERPRETED = """
import msgspec, torch
from sublight.kernels.catalogue import Limits
from sublight.kernels.masked_call import checked_call
from sublight.kernels.masked_portable import configure_decoded, run_decoded
from sublight.kernels.masked_reference import grouped_gemm
from tests.torch.test_masked import NVFP4_TYPES, Operand, empty, masks

card = Limits(target="sm_90", shared_memory_bytes=232448, sm_count=132)
# bf16 is left out: the interpreter computes with its bit patterns.
for groups, m, n, k, rows, kind in [
    (2, 5, 16, 96, (3, 0), "float32"),
    (1, 20, 136, 64, (20,), "float16"),
    (2, 70, 72, 160, (65, 70), "float32"),
]:
    lhs, rhs = Operand(groups, m, k, 1), Operand(groups, n, k, 2)
    lhs.scales.view(torch.uint8)[:, max(rows):] = 0x7F  # stale rows
    lhs_pair, rhs_pair = lhs.pair, rhs.pair
    for pair, scales in ((lhs_pair, k // 16), (rhs_pair, k // 16)):  # stale padding
        tiles = pair[1].permute(5, 2, 4, 0, 1, 3).view(torch.uint8)
        if scales % 4:
            tiles[:, :, -1, :, :, scales % 4:] = 0x7F
    alpha = torch.rand(groups, generator=torch.Generator().manual_seed(3))
    results = []
    for run in (run_decoded, grouped_gemm):
        out = empty(groups, m, n, getattr(torch, kind))
        call = checked_call(
            lhs_pair, rhs_pair, out, masks(*rows), **NVFP4_TYPES | {"c_dtype": kind}, dst_signals=None, sm_count=None,
            options={"alpha": alpha, "alpha_dtype": "float32"} if groups > 1 else {},
        )
        run(msgspec.structs.replace(call, configuration=configure_decoded(call.problem, card)))
        results.append(out.double())
    error = (results[0] - results[1]).norm() / results[1].norm()
    beyond = sum(int((results[0][count:, :, group] != 77).sum()) for group, count in enumerate(rows))
    print(f"{float(error):.1e}", beyond)
"""


QUANTISED = """
import torch
from sublight.kernels.masked_portable import run_quantise
from sublight.kernels.masked_reference import quantise
from sublight.kernels.problem import GroupedQuantiseProblem
from tests.torch.layers import normal

for silu in (False, True):
    for groups, m, k in ((3, 5, 96), (1, 130, 1040)):
        a = normal(groups, m, 2 * k if silu else k).half()
        a[0, 0, :16] *= 1e-3
        a[0, 1, 16:32] = 0
        a[0, 1, 32:48] = 6e-8  # a block whose scale rounds to zero
        a[0, 2, 5] = float("nan")
        mask = torch.tensor([4, 0, m][:groups], dtype=torch.int32)
        scale = torch.tensor([300.0, 500.0, 700.0])[:groups]
        problem = GroupedQuantiseProblem(m=m, k=k, num_groups=groups, in_dtype="float16", silu=silu)
        got, wanted = (run(problem, a, mask, scale, {}) for run in (run_quantise, quantise))
        for x, y in zip(got, wanted):
            assert (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)
            print(int((x.view(torch.uint8) != y.view(torch.uint8)).sum()))
"""


def test_the_interpreter_computes_the_oracle(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    products, different = script(INTERPRETED + "print()\n" + QUANTISED, tmp_path, TRITON_INTERPRET="1").split("\n\n")
    assert len(products.splitlines()) == 3
    for line in products.splitlines():
        error, written_beyond = line.split()
        assert float(error) < 1e-6
        assert int(written_beyond) == 0
    assert different.split() == ["0"] * 8  # codes and scales, bit for bit


CASES = {
    "h200 nvfp4 128": "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16",
    "b200 nvfp4 16": "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale",
    "b300 mxfp4 16": "tcgen05.mma.cta_group::1.kind::mxf4.block_scale",
    "rtx-pro-6000-server nvfp4 64": "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
}
CROSS_COMPILED = r"""
import sys
import torch
from sublight.facts.gpu import get_gpu
from sublight.kernels import masked_triton, quantise_triton
from sublight.kernels.heuristics import choose
from sublight.kernels.masked_call import GemmCall
from sublight.kernels.masked_portable import run_quantise
from sublight.kernels.problem import GroupedGemmProblem, GroupedQuantiseProblem
from tests.torch.crosscompile import Recorder, products


def empty(*shape, dtype=torch.uint8):
    return torch.empty(shape, dtype=dtype, device="meta")


groups, n, k = 32, 512, 6144
for case in sys.argv[1:]:
    card, operands, m = case.split()
    m = int(m)
    problem = GroupedGemmProblem(m=m, n=n, k=k, num_groups=groups, operands=operands, out_dtype="bfloat16")
    choice = choose(problem, get_gpu(card))
    vec = 16 if operands == "nvfp4" else 32
    wide = k // vec // 4
    call = GemmCall(
        problem=problem, ab_dtype="float4_e2m1fn", sf_vec_size=vec,
        lhs=empty(groups, m, k // 2), lhs_scale=empty(groups, -(-m // 128), wide, 32, 4, 4),
        rhs=empty(groups, n, k // 2), rhs_scale=empty(groups, n // 128, wide, 32, 4, 4),
        out=empty(groups, m, n, dtype=torch.bfloat16), masked_m=empty(groups, dtype=torch.int32),
        alpha=empty(groups, dtype=torch.float32), configuration=choice.configuration,
    )
    with Recorder.of(masked_triton, choice.target, "decoded_product", "native_product") as recorders:
        choice.kernel.load()(call)
    built, = (b for recorder in recorders.values() for b in recorder.built)
    fits = built.metadata.shared <= get_gpu(card).shared_memory_per_block_bytes.known
    print(fits, *sorted(products(built)))

problem = GroupedQuantiseProblem(m=16, k=2048, num_groups=4, in_dtype="bfloat16", silu=True)
with Recorder.of(quantise_triton, "sm_90", "quantise_groups") as recorders:
    values = empty(4, 16, 4096, dtype=torch.bfloat16)
    run_quantise(problem, values, empty(4, dtype=torch.int32), empty(4, dtype=torch.float32), {})
built, = recorders["quantise_groups"].built
print(len(built.asm["cubin"]) > 0)
"""


def test_what_dispatch_returns_compiles_for_its_target(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    *lines, quantiser = script(CROSS_COMPILED, tmp_path, *CASES).splitlines()
    assert quantiser == "True"
    for (case, instruction), line in zip(CASES.items(), lines, strict=True):
        fits, *instructions = line.split()
        assert fits == "True", case
        assert any(instruction in found for found in instructions), (case, instructions)
