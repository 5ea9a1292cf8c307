"""The masked grouped GEMM: FlashInfer's shapes and meaning, every pattern of masks, refusals with their reasons."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.errors import KernelError, UnknownNameError
from sublight.kernels import grouped_gemm_nt_masked
from sublight.kernels.agreement import check_padding, require_agreement, sweep, sweep_tokens
from sublight.kernels.catalogue import Limits
from sublight.kernels.masked_call import LATER, checked_call
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.swizzle import swizzle, to_masked
from tests.torch.layers import E2M1

NVFP4_TYPES: dict[str, Any] = {
    "ab_dtype": "float4_e2m1fn",
    "sf_dtype": "float8_e4m3fn",
    "c_dtype": "bfloat16",
    "sf_vec_size": 16,
}
BF16 = 2**-8  # of a value, at most


class Operand:
    """Random codes and moderate scales of l matrices, and what they mean in float64."""

    def __init__(self, groups: int, rows: int, k: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.codes = torch.randint(0, 256, (groups, rows, k // 2), dtype=torch.uint8, generator=generator)
        scales = torch.rand(groups, rows, k // 16, generator=generator) + 0.25
        self.scales = scales.to(torch.float8_e4m3fn)
        table = np.array(E2M1, dtype=np.float64)
        bytes_ = self.codes.numpy()
        values = np.stack((table[bytes_ & 15], table[bytes_ >> 4]), axis=-1).reshape(groups, rows, k)
        self.values = values * np.repeat(self.scales.float().numpy().astype(np.float64), 16, axis=-1)

    @property
    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.codes.permute(1, 2, 0), to_masked(self.scales)


def empty(groups: int, m: int, n: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """(m, n, l) over memory (l, m, n), holding what nobody may read as a result."""
    return torch.full((groups, m, n), 77.0).to(dtype).permute(1, 2, 0)


def masks(*rows: int) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int32)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    groups=st.integers(1, 4),
    m=st.integers(1, 140),
    n=st.integers(1, 20),
    k=st.integers(1, 5),
    with_alpha=st.booleans(),
    pattern=st.sampled_from(["none", "full", "ragged"]),
    seed=st.integers(0, 2**31),
)
def test_every_pattern_of_masks_against_float64(
    data: st.DataObject, groups: int, m: int, n: int, k: int, with_alpha: bool, pattern: str, seed: int
) -> None:
    n, k = n * 8, k * 32
    lhs, rhs = Operand(groups, m, k, seed), Operand(groups, n, k, seed + 1)
    rows = {"none": [0] * groups, "full": [m] * groups}.get(pattern) or [
        data.draw(st.integers(0, m), label="rows") for _ in range(groups)
    ]
    alpha = torch.rand(groups, generator=torch.Generator().manual_seed(seed)) + 0.5
    more = {"alpha": alpha.reshape(1, 1, groups), "alpha_dtype": "float32"} if with_alpha else {}
    out = empty(groups, m, n)
    returned = grouped_gemm_nt_masked(lhs.pair, rhs.pair, out, masks(*rows), **NVFP4_TYPES, backend="reference", **more)
    assert returned is out
    for group, count in enumerate(rows):
        wanted = torch.from_numpy(lhs.values[group] @ rhs.values[group].T)
        wanted = wanted * float(alpha[group]) if with_alpha else wanted
        got = out[:, :, group]
        assert torch.allclose(got[:count].double(), wanted[:count], rtol=BF16, atol=1e-4)
        assert bool((got[count:] == 77.0).all())  # rows that do not count keep what they had


def test_stale_rows_and_stale_padding_of_scales_do_not_matter() -> None:
    groups, m, n, k = 2, 5, 16, 3 * 32  # 6 scales a row: two columns of padding; 123 rows of padding
    lhs, rhs = Operand(groups, m, k, 1), Operand(groups, n, k, 2)
    rows = masks(3, 0)
    wanted = torch.zeros(groups, m, n, dtype=torch.float64)
    wanted[0, :3] = torch.from_numpy(lhs.values[0][:3] @ rhs.values[0].T)

    def product(memory: torch.Tensor, swapped: bool) -> torch.Tensor:
        out = torch.zeros(groups, m, n)
        a, b = (swizzle(lhs.scales), memory) if swapped else (memory, swizzle(rhs.scales))
        grouped_gemm_nt_masked(
            (lhs.codes.permute(1, 2, 0), a),
            (rhs.codes.permute(1, 2, 0), b),
            out.permute(1, 2, 0),
            rows,
            **NVFP4_TYPES | {"c_dtype": "float32"},
            backend="reference",
        )
        return out

    for scales, height, swapped in ((lhs.scales, m, False), (rhs.scales, n, True)):
        found = check_padding(lambda memory, s=swapped: product(memory, s), swizzle(scales), height, 6, wanted, 1e-6)
        assert len(found) == 5 and all(agreement.agrees for agreement in found.values())
    lhs.scales.view(torch.uint8)[0, 3:] = 0x7F
    lhs.scales.view(torch.uint8)[1] = 0x7F
    require_agreement("stale rows", product(swizzle(lhs.scales), False), wanted, 1e-6)


@pytest.mark.parametrize("form", ["masked", "tiles"])
@pytest.mark.parametrize("order", ["logical", "documented"])
def test_both_forms_of_scales_and_of_the_output(form: str, order: str) -> None:
    lhs, rhs = Operand(3, 7, 64, 1), Operand(3, 24, 64, 2)
    pairs = [operand.pair if form == "masked" else (operand.pair[0], swizzle(operand.scales)) for operand in (lhs, rhs)]
    out = empty(3, 7, 24)
    given = out if order == "logical" else out.permute(2, 0, 1)
    grouped_gemm_nt_masked(pairs[0], pairs[1], given, masks(7, 7, 7), **NVFP4_TYPES, backend="reference")
    wanted = torch.from_numpy(np.einsum("gmk,gnk->mng", lhs.values, rhs.values))
    require_agreement(form, out, wanted, NVFP4.kernel_error)


@pytest.mark.parametrize(
    ("ab", "sf", "size", "out"),
    [
        ("float4_e2m1fn", "float8_e8m0fnu", 32, "float16"),
        ("float4_e2m1fn", "float8_e8m0fnu", 16, "float32"),
        ("float8_e4m3fn", "float8_e8m0fnu", 32, "bfloat16"),
        ("float8_e5m2", "float8_e8m0fnu", 32, "float8_e5m2"),
        ("float4_e2m1fn", "float8_e4m3fn", 16, "float8_e4m3fn"),
    ],
)
def test_other_formats_and_results(ab: str, sf: str, size: int, out: str) -> None:
    groups, m, n, k = 2, 5, 16, 64
    generator = torch.Generator().manual_seed(3)
    four = ab.startswith("float4")
    operands, values = [], []
    for rows in (m, n):
        if four:
            codes = torch.randint(0, 256, (groups, rows, k // 2), dtype=torch.uint8, generator=generator)
            table = torch.tensor(E2M1)
            plain = torch.stack((table[(codes & 15).long()], table[(codes >> 4).long()]), -1).flatten(-2)
        else:
            codes = torch.randn(groups, rows, k, generator=generator).to(getattr(torch, ab))
            plain = codes.float()
        bits = torch.randint(120, 131, (groups, rows, k // size), dtype=torch.uint8, generator=generator)
        power = torch.exp2(bits.float() - 127)
        scales = bits.view(torch.float8_e8m0fnu) if sf == "float8_e8m0fnu" else power.to(torch.float8_e4m3fn)
        operands.append((codes.permute(1, 2, 0), to_masked(scales)))
        values.append(plain.double() * power.double().repeat_interleave(size, -1))
    result = empty(groups, m, n, getattr(torch, out))
    types = {"ab_dtype": ab, "sf_dtype": sf, "c_dtype": out, "sf_vec_size": size}
    grouped_gemm_nt_masked(operands[0], operands[1], result, masks(m, m), **types, backend="reference")  # type: ignore[arg-type]
    wanted = torch.einsum("gmk,gnk->mng", *values)
    largest = torch.finfo(getattr(torch, out)).max
    error = {"float32": 1e-6, "float16": 2**-11, "bfloat16": 2**-8, "float8_e4m3fn": 2**-4, "float8_e5m2": 2**-3}[out]
    clamped = wanted.clamp(-largest, largest)
    assert torch.allclose(result.double(), clamped, rtol=error * 1.01, atol=float(clamped.abs().max()) * 1e-5)


def call(**change: Any) -> dict[str, Any]:
    lhs, rhs = Operand(2, 4, 64, 1), Operand(2, 16, 64, 2)
    base = {"lhs": lhs.pair, "rhs": rhs.pair, "out": empty(2, 4, 16), "masked_m": masks(4, 1), "backend": "reference"}
    return base | NVFP4_TYPES | change


A, A_SCALES = Operand(2, 4, 64, 1).pair


@pytest.mark.parametrize(
    ("change", "asked", "found"),
    [
        (
            {"rhs": Operand(2, 16, 32, 2).pair},
            r"dimension 1 \(k/2\) of rhs",
            "it is 16, where k = 64 of lhs makes it 32",
        ),
        ({"rhs": Operand(3, 16, 64, 2).pair}, r"dimension 2 \(l\) of rhs", "it is 3, where l = 2 of lhs makes it 2"),
        ({"masked_m": masks(4, 1, 0)}, r"dimension 0 \(l\) of masked_m", "it is 3"),
        ({"masked_m": masks(4, 1).long()}, "masked_m", "its type is int64"),
        ({"masked_m": masks(4, 5)}, "masked_m of group 1", "it is 5, of 4 rows"),
        ({"masked_m": masks(4, -1)}, "masked_m of group 1", "it is -1, of 4 rows"),
        ({"out": empty(2, 4, 24)}, r"dimension 1 \(16\) of out", "it is 24"),
        ({"out": torch.zeros(4, 16, 2, dtype=torch.bfloat16)}, "out", "its strides are"),
        ({"out": empty(2, 4, 16, torch.float16)}, "out", "its type is float16"),
        ({"lhs": (A.contiguous(), A_SCALES)}, "lhs", "its strides are"),
        ({"lhs": (A, A_SCALES[..., :1])}, r"dimension 5 \(2\) of lhs scales", "it is 1"),
        ({"lhs": (A, A_SCALES.contiguous())}, "lhs scales", "its strides are"),
        ({"lhs": (A, torch.zeros(2, 128, 8, dtype=torch.uint8))}, r"dimension 2 \(4\) of lhs scales", "it is 8"),
        ({"lhs": (A,)}, "lhs", "it has 1 parts"),
        ({"c_dtype": "int8"}, "c_dtype", "'int8' is not known"),
        ({"sf_vec_size": 32}, "ab_dtype, sf_dtype and sf_vec_size", "float8_e4m3fn scales over 32 values is no format"),
        ({"ab_dtype": "float8_e4m3fn"}, "ab_dtype, sf_dtype and sf_vec_size", "over 16 values is no format"),
        ({"alpha": torch.ones(2)}, "alpha_dtype", "its type is not said"),
        ({"alpha": torch.ones(3), "alpha_dtype": "float32"}, "alpha", r"its shape is \[3\], and there are 2 groups"),
        ({"alpha": torch.ones(2).half(), "alpha_dtype": "float32"}, "alpha", "its type is float16"),
        ({"dst_signals": torch.zeros(2, dtype=torch.uint32)}, "dst_signals", "the reference has no completion signals"),
        ({"dst_signals": torch.zeros(2)}, "dst_signals", "its type is float32"),
        ({"dst_signals": "all"}, "dst_signals", "it is no tensor but of type str"),
        ({"sm_count": 0}, "sm_count", "it is 0"),
        ({"mma_tiler_mn": (64, 128)}, "mma_tiler_mn", r"it is \(64, 128\)"),
        ({"cluster_shape_mn": (3, 1)}, "cluster_shape_mn", r"it is \(3, 1\)"),
        ({"mma_tiler_mn": (256, 128)}, "cluster_shape_mn", r"it is \(1, 1\)"),
        ({"alfa": torch.ones(2)}, "alfa", "there is no such argument. Try: alpha"),
        ({"topk_weights": torch.ones(2, 4)}, "topk_weights", "FlashInfer 0.6.3 has no topk_weights"),
        ({"num_ranks": 2}, "num_ranks", "FlashInfer 0.6.3 has no num_ranks; it came later, and its default is 0"),
        ({"is_swap_ab": True}, "is_swap_ab", "FlashInfer 0.6.3 has no is_swap_ab"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_written(change: dict[str, Any], asked: str, found: str) -> None:
    arguments = call(**change)
    with pytest.raises(KernelError, match=f"{asked}.*{found}"):
        grouped_gemm_nt_masked(**arguments)
    assert bool((arguments["out"].float().eq(77) | arguments["out"].float().eq(0)).all())


HINT = "128 or 256 in each place"
NAME = "a type's name, such as 'float32'"
META = A_SCALES.permute(5, 2, 4, 0, 1, 3).to("meta").permute(3, 4, 1, 5, 2, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lhs": None}, "lhs: it is no pair but of type NoneType. Try: codes and block scales"),
        ({"lhs": torch.zeros(2, 4, 32)}, "lhs: it is no pair but of type Tensor. Try: codes and block scales"),
        ({"rhs": (1, 2, 3)}, "rhs: it has 3 parts. Try: codes and block scales"),
        (
            {"lhs": (A.numpy(), A_SCALES)},
            "lhs: it is no tensor but of type ndarray. Try: lhs [m, k/2, l] uint8 or float4_e2m1fn_x2",
        ),
        ({"lhs": (A, None)}, "lhs scales: it is missing. Try: float8_e4m3fn scales in whole tiles"),
        ({"lhs": (A, META)}, "lhs scales: it is on meta, and lhs on cpu. Try: all tensors on one device"),
        (
            {"lhs": (A, torch.zeros(256, 4, dtype=torch.uint8))},
            "lhs scales: its shape is [256, 4]. Try: lhs scales [32, 4, 1, 4, 1, 2] float8_e4m3fn or uint8",
        ),
        ({"out": None}, "out: it is missing. Try: bfloat16 [m, n, l]"),
        ({"out": empty(2, 4, 16).numpy}, "out: it is no tensor but of type builtin_function_or_method. "),
        ({"out": empty(2, 4, 16).to("meta")}, "out: it is on meta, and lhs on cpu. Try: all tensors on one device"),
        ({"masked_m": [4, 1]}, "masked_m: it is no tensor but of type list. Try: masked_m [l] int32"),
        ({"masked_m": masks(4, 1).to_sparse()}, "masked_m: its layout is torch.sparse_coo. Try: a dense tensor: "),
        ({"alpha": 1.0, "alpha_dtype": "float32"}, "alpha: it is no tensor but of type float. Try: float32 [l], "),
        ({"alpha": [1.0, 2.0], "alpha_dtype": "float32"}, "alpha: it is no tensor but of type list. Try: float32 [l]"),
        ({"alpha": torch.ones(2, device="meta"), "alpha_dtype": "float32"}, "alpha: it is on meta, and lhs on cpu."),
        (
            {"alpha": torch.ones(2), "alpha_dtype": torch.float32},
            f"alpha_dtype: it is torch.float32 of type dtype. Try: {NAME}",
        ),
        ({"ab_dtype": ["x"]}, f"ab_dtype: it is ['x'] of type list. Try: {NAME}"),
        ({"sf_dtype": None}, f"sf_dtype: it is None of type NoneType. Try: {NAME}"),
        ({"c_dtype": torch.bfloat16}, f"c_dtype: it is torch.bfloat16 of type dtype. Try: {NAME}"),
        (
            {"sf_vec_size": 16.0},
            "ab_dtype, sf_dtype and sf_vec_size: float4_e2m1fn with float8_e4m3fn scales over 16.0 values is no format",
        ),
        ({"mma_tiler_mn": None}, f"mma_tiler_mn: it is None. Try: {HINT}"),
        ({"mma_tiler_mn": 5}, f"mma_tiler_mn: it is 5. Try: {HINT}"),
        ({"mma_tiler_mn": [[128], 128]}, f"mma_tiler_mn: it is [[128], 128]. Try: {HINT}"),
        ({"cluster_shape_mn": (1, True)}, "cluster_shape_mn: it is (1, True). Try: 1, 2 or 4 in each place"),
        ({"sm_count": "4"}, "sm_count: it is '4'. Try: a whole number of at least 1"),
        ({"sm_count": 1.5}, "sm_count: it is 1.5. Try: a whole number of at least 1"),
        ({"num_ranks": torch.ones(3)}, "num_ranks: FlashInfer 0.6.3 has no num_ranks; it came later"),
        (
            {"backend": 3},
            "backend: it is 3, which is no name. Try: None, or one of masked-triton, masked-triton-fp4, reference",
        ),
    ],
)
def test_what_is_no_such_argument_at_all_is_named_once(change: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError) as raised:
        grouped_gemm_nt_masked(**call(**change))
    assert str(raised.value).startswith(f"grouped_gemm_nt_masked: {message}")


def test_sizes_of_zero_are_refused() -> None:
    nothing = call(lhs=(A[:0], A_SCALES[:, :, :0]), out=empty(2, 0, 16), masked_m=masks(0, 0))
    with pytest.raises(KernelError, match="a grouped product with this m: it is 0"):
        grouped_gemm_nt_masked(**nothing)


@pytest.mark.parametrize(("out", "largest"), [("float8_e4m3fn", 448.0), ("float8_e5m2", 57344.0)])
def test_results_beyond_eight_bits_saturate(out: str, largest: float) -> None:
    codes = torch.full((1, 16, 32), 0x77, dtype=torch.uint8)  # 6 and 6
    scales = torch.full((1, 128, 4), 0x7E, dtype=torch.uint8)  # 448: a result is 64 * 2688 * 2688
    result = empty(1, 16, 16, getattr(torch, out))
    pair = (codes.permute(1, 2, 0), scales)
    negative = ((codes | 0x80).permute(1, 2, 0), scales)  # -6 and 6
    for rhs, wanted in ((pair, largest), (negative, 0.0)):
        types = NVFP4_TYPES | {"c_dtype": out}
        grouped_gemm_nt_masked(pair, rhs, result, masks(16), **types, backend="reference")
        assert result.float().unique().tolist() == [wanted]


def test_rows_that_are_no_whole_16_bytes_are_refused() -> None:
    lhs, rhs = Operand(2, 4, 48, 1), Operand(2, 16, 48, 2)
    with pytest.raises(KernelError, match=r"dimension k: 48 values of it are no whole rows of 16 bytes"):
        grouped_gemm_nt_masked(lhs.pair, rhs.pair, empty(2, 4, 16), masks(4, 4), **NVFP4_TYPES, backend="reference")
    lhs, rhs = Operand(2, 4, 64, 1), Operand(2, 12, 64, 2)
    with pytest.raises(KernelError, match=r"dimension n: 12 values"):
        grouped_gemm_nt_masked(lhs.pair, rhs.pair, empty(2, 4, 12), masks(4, 4), **NVFP4_TYPES, backend="reference")


def test_later_arguments_are_taken_at_their_default() -> None:
    arguments = call(**LATER, mma_tiler_mn=(256, 256), cluster_shape_mn=(2, 4), sm_count=20, dst_signals=None)
    assert grouped_gemm_nt_masked(**arguments) is arguments["out"]


def test_tensors_on_a_cpu_need_the_reference_named() -> None:
    with pytest.raises(KernelError, match=r"its tensors are on cpu.*backend='reference'"):
        grouped_gemm_nt_masked(**call(backend=None))
    with pytest.raises(UnknownNameError, match="kernel 'referense'"):
        grouped_gemm_nt_masked(**call(backend="referense"))


def test_a_gpu_without_a_kernel_is_refused_with_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    from sublight.kernels import device, dispatch

    arguments = call()
    arguments.pop("backend")
    known = checked_call(**arguments, dst_signals=None, sm_count=None, options={})
    monkeypatch.setattr(dispatch, "require_gpu", lambda call, kind: None)
    monkeypatch.setattr(device, "limits_of", lambda where: Limits(target="sm_75"))
    with pytest.raises(
        KernelError, match=r"2 products \[4, 64\] x \[16, 64\] of nvfp4 to bfloat16 on sm_75: none fits"
    ):
        dispatch.dispatch("call", known.problem, known.lhs.device, None)


def test_the_sweep_over_rows() -> None:
    def product(m: int) -> tuple[torch.Tensor, torch.Tensor]:
        lhs, rhs = Operand(1, m, 32, m), Operand(1, 8, 32, 7)
        out = empty(1, m, 8)
        grouped_gemm_nt_masked(lhs.pair, rhs.pair, out, masks(m), **NVFP4_TYPES, backend="reference")
        return out[:, :, 0], torch.from_numpy(lhs.values[0] @ rhs.values[0].T)

    found = sweep(product, sweep_tokens(), BF16)
    assert 3072 in found and not [m for m, agreement in found.items() if not agreement.agrees]


def test_the_function_can_be_imported_and_refuses_where_there_is_no_torch() -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"  # as if it were not installed
        "from sublight.kernels import grouped_gemm_nt_masked, moe_masked\n"
        "import inspect\n"
        "print(*list(inspect.signature(grouped_gemm_nt_masked).parameters)[:10])\n"
        "assert not {'triton', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    wanted = "lhs rhs out masked_m ab_dtype sf_dtype c_dtype sf_vec_size dst_signals sm_count"
    assert done.stdout.split() == wanted.split()
