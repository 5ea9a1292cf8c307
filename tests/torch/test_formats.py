"""Block formats: a block worked by hand, round trips, and how far a value moves."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.errors import KernelError
from sublight.kernels.numerics.formats import (
    BLOCK_FORMATS,
    FP8_BLOCK,
    FP8_GROUP,
    MXFP4,
    NVFP4,
    BlockFormat,
    amax_scale,
    get_block_format,
)
from sublight.kernels.numerics.quantised import GlobalScale, Quantised

FORMATS = pytest.mark.parametrize("form", list(BLOCK_FORMATS.values()), ids=list(BLOCK_FORMATS))


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_one_nvfp4_block_by_hand() -> None:
    # Global scale 1/448, so that a block scale of 448 stands for 1: the block's largest is 6, and 6/6 * 448 = 448.
    values = torch.tensor([[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.5, -6.0, 5.0, 2.4, 0.2, 0.3, 7 / 4, 3.5]])
    matrix = NVFP4.quantise(values, GlobalScale(torch.tensor([448.0]), is_divisor=True))
    assert matrix.scales.float().tolist() == [[448.0]]
    low = [0, 2, 4, 6, 9, 6, 0, 4]
    high = [1, 3, 5, 7, 15, 4, 1, 6]
    assert matrix.codes.tolist() == [[a | b << 4 for a, b in zip(low, high, strict=True)]]
    wanted = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.5, -6.0, 4.0, 2.0, 0.0, 0.5, 2.0, 4.0]
    assert matrix.dequantise().tolist()[0] == pytest.approx(wanted, rel=1e-6)


def test_the_global_scale_of_a_matrix_is_amax_over_2688() -> None:
    values = normal(3, 4, 32)
    values[0, 1, 2] = 5.0
    assert amax_scale(values).stored[0].item() == pytest.approx(5 / 2688)
    assert NVFP4.quantise(values).scales.float().amax(dim=(-2, -1)).tolist() == [448.0] * 3
    assert amax_scale(torch.zeros(2, 2)).stored.tolist() == [1.0]


def test_one_mxfp4_block_by_hand() -> None:
    values = torch.zeros(1, 32)
    values[0, :4] = torch.tensor([7.9, -4.0, 3.0, 0.6])
    matrix = MXFP4.quantise(values)
    assert matrix.scales.tolist() == [[127]]  # 7.9 lies in [4, 8): 2**(2 - 2)
    assert matrix.dequantise()[0, :4].tolist() == [6.0, -4.0, 3.0, 0.5]
    assert MXFP4.quantise(values * 2**-20).scales.tolist() == [[107]]
    assert MXFP4.quantise(torch.zeros(1, 32)).scales.tolist() == [[0]]


def test_a_block_with_infinity_gets_the_largest_mxfp4_scale_and_one_with_nan_none() -> None:
    values = torch.ones(3, 32)
    values[0, 5], values[1, 7] = float("inf"), float("nan")
    matrix = MXFP4.quantise_activations(values)
    assert matrix.scales.tolist() == [[254], [255], [125]]
    assert matrix.dequantise()[0, 5].item() == float("inf")  # 6 * 2**127 is no fp32
    assert bool(matrix.dequantise()[1].isnan().all())


@FORMATS
def test_what_is_no_matrix_is_refused_and_one_without_values_has_none(form: BlockFormat) -> None:
    for values, found in (
        (None, "values: it is missing"),
        ([1.0], "values: it is no tensor but of type list"),
    ):
        with pytest.raises(KernelError) as raised:
            form.quantise(values)  # type: ignore[arg-type]
        assert str(raised.value) == f"quantising to {form.name}: {found}. Try: [..., rows, columns]"
    with pytest.raises(KernelError) as raised:
        form.quantise(torch.ones(32))
    assert str(raised.value) == f"quantising to {form.name}: its shape is [32]. Try: [..., rows, columns]"
    for shape in ((0, 32), (4, 0), (2, 0, 32)):
        matrix = form.quantise(torch.zeros(shape))
        assert matrix.shape == shape and tuple(matrix.dequantise().shape) == shape
    with pytest.raises(KernelError) as raised:
        Quantised(form, torch.zeros(2, 32, dtype=torch.uint8), None)  # type: ignore[arg-type]
    assert str(raised.value).startswith(f"a {form.name} matrix: scales: it is missing. Try: ")


def test_fp8_tiles_share_a_scale_over_rows_and_columns() -> None:
    values = normal(130, 200)
    matrix = FP8_BLOCK.quantise(values)
    assert matrix.scales.shape == (2, 2)
    assert matrix.scales[1, 1].item() == pytest.approx(values[128:, 128:].abs().max().item() / 448)
    assert FP8_GROUP.quantise(values).scales.shape == (130, 2)


@FORMATS
def test_bits_are_those_of_the_cost_model(form: BlockFormat) -> None:
    matrix = form.quantise(normal(256, 512))
    stored = matrix.codes.nbytes + matrix.scales.nbytes
    assert stored * 8 / (256 * 512) == form.bits_per_value
    assert form.facts.storage((256, 512)).total_bytes - form.facts.tensor_scale_bytes == stored
    assert get_block_format(form.name) is form
    assert (matrix.codes.dtype, matrix.scales.dtype) == (form.code_dtype, form.scale_dtype)


def test_bits_per_value() -> None:
    assert [f.bits_per_value for f in (NVFP4, MXFP4, FP8_GROUP)] == [4.5, 4.25, 8.25]


@FORMATS
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 6),
    blocks=st.integers(1, 4),
    size=st.floats(1e-3, 1e3),
    spread=st.floats(0.0, 4.0),
)
def test_a_value_moves_by_no_more_than_the_format_says(
    form: BlockFormat, seed: int, rows: int, blocks: int, size: float, spread: float
) -> None:
    values = normal(rows, blocks * form.block, seed=seed) * size
    values *= torch.exp(normal(rows, 1, seed=seed + 1) * spread)  # blocks of very different size
    matrix = form.quantise(values)
    decoded = matrix.dequantise()
    tall = torch.ones(rows, 1) if form.block_rows == 1 else torch.ones(1, 1)
    amax = values.abs().reshape(rows, blocks, form.block).amax(-1)
    amax = amax if form.block_rows == 1 else amax.amax(0, keepdim=True)
    bound = (amax * tall).repeat_interleave(form.block, -1) * form.value_error
    if matrix.global_scale is not None:  # a block scale below E4M3's normal range rounds by up to half its last step
        bound += 7 * 2**-10 * matrix.global_scale.multiplier
    assert bool(((decoded - values).abs() <= bound * (1 + 1e-5)).all())


@FORMATS
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), stack=st.integers(1, 3))
def test_decoding_and_quantising_again_changes_no_value(form: BlockFormat, seed: int, stack: int) -> None:
    matrix = form.quantise(normal(stack, 4, 2 * form.block, seed=seed))
    values = matrix.dequantise()
    again = form.quantise(values, matrix.global_scale)
    assert torch.allclose(again.dequantise(), values, rtol=2e-7, atol=0)
    assert torch.equal(matrix[0].dequantise(), values[0])


def test_gate_and_up_keep_global_scales_of_their_own() -> None:
    values = torch.cat([normal(8, 32), normal(8, 32) * 100])
    above = GlobalScale(torch.tensor([0.001, 0.1]))
    decoded = NVFP4.quantise(values, above).dequantise()
    gate = NVFP4.quantise(values[:8], GlobalScale(torch.tensor([0.001]))).dequantise()
    up = NVFP4.quantise(values[8:], GlobalScale(torch.tensor([0.1]))).dequantise()
    assert torch.equal(decoded, torch.cat([gate, up]))


@FORMATS
def test_nan_is_refused_in_weights_and_survives_in_activations(form: BlockFormat) -> None:
    values = normal(2, 2 * form.block)
    values[1, 3] = float("nan")
    with pytest.raises(KernelError, match="1 values are not finite"):
        form.quantise(values)
    above = GlobalScale(torch.tensor([0.001])) if form.has_global else None
    decoded = form.quantise_activations(values, above).dequantise()
    assert bool(
        decoded[1, : form.block].isnan().all() if form.block_rows == 1 else decoded[:, : form.block].isnan().all()
    )
    assert not bool(decoded[:, form.block :].isnan().any())


def test_a_block_too_small_for_its_scale_is_zero_and_not_nan() -> None:
    values = torch.full((1, 32), 1e-9)
    values[0, 16:] = 1.0
    matrix = NVFP4.quantise(values, GlobalScale(torch.tensor([1 / 448 / 6])))
    assert matrix.dequantise()[0, :16].tolist() == [0.0] * 16
    assert matrix.codes[0, :8].tolist() == [0] * 8


def test_columns_that_cut_a_group_are_refused() -> None:
    with pytest.raises(KernelError, match="232 columns are no whole groups of 16"):
        NVFP4.quantise(torch.zeros(4, 232))


def test_scales_of_another_shape_are_refused() -> None:
    matrix = NVFP4.quantise(normal(4, 64))
    with pytest.raises(KernelError, match=r"scales are \[4, 2\] where \[4, 4\] belong"):
        type(matrix)(NVFP4, matrix.codes, matrix.scales[:, :2], matrix.global_scale)
    with pytest.raises(KernelError, match="it has none"):
        type(matrix)(NVFP4, matrix.codes, matrix.scales)
