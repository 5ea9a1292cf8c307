"""Layouts and their inverses: not a bit may change."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.errors import KernelError
from sublight.kernels.numerics.checkpoints import (
    StoredMatrix,
    join_gate_up,
    read_gpt_oss,
    read_nvfp4,
    stack_experts,
    write_gpt_oss,
    write_nvfp4,
)
from sublight.kernels.numerics.formats import FP8_BLOCK, MXFP4, NVFP4
from sublight.kernels.numerics.gate_up import Order, reorder, rows_of, split
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.numerics.swizzle import dirty_padding, from_masked, swizzle, to_masked, unswizzle

ORDERS: tuple[Order, ...] = ("gate-up", "up-gate", "interleaved")


def random_bytes(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def matrix(rows: int, columns: int, seed: int = 0, above: float = 0.25) -> Quantised:
    scales = random_bytes(rows, columns // 16, seed=seed + 1) & 0x7E  # positive, and no NaN
    return Quantised(
        NVFP4,
        random_bytes(rows, columns // 2, seed=seed),
        scales.view(torch.float8_e4m3fn),
        GlobalScale(torch.tensor([above])),
    )


def same(a: Quantised, b: Quantised) -> bool:
    bits = torch.equal(a.codes.view(torch.uint8), b.codes.view(torch.uint8))
    scales = torch.equal(a.scales.view(torch.uint8), b.scales.view(torch.uint8))
    if a.global_scale is None or b.global_scale is None:
        return bits and scales and a.global_scale is b.global_scale
    return bits and scales and torch.equal(a.global_scale.stored, b.global_scale.stored)


@settings(max_examples=80, deadline=None)
@given(rows=st.integers(1, 300), scales=st.integers(1, 20), stack=st.integers(0, 3), seed=st.integers(0, 2**31))
def test_swizzle_and_back(rows: int, scales: int, stack: int, seed: int) -> None:
    shape = (stack, rows, scales) if stack else (rows, scales)
    given = random_bytes(*shape, seed=seed)
    turned = swizzle(given)
    assert turned.shape[-2] % 128 == turned.shape[-1] % 4 == 0
    assert torch.equal(unswizzle(turned, rows, scales), given)
    assert int(turned.long().sum()) == int(given.long().sum())  # padding is zero
    for byte in (0x7E, 0x7F, 0xFF):
        dirty = dirty_padding(turned, rows, scales, byte)
        assert torch.equal(unswizzle(dirty, rows, scales), given)
        assert int((dirty != turned).sum()) == turned.numel() - given.numel()


def test_swizzle_puts_each_scale_where_hardware_reads_it() -> None:
    rows, scales = 200, 9
    given = random_bytes(rows, scales)
    memory = swizzle(given).flatten()
    for row, scale in [(0, 0), (31, 3), (32, 0), (127, 8), (128, 4), (199, 5), (33, 7)]:
        tile = row // 128 * 3 + scale // 4  # 9 scales are padded to three tiles
        place = tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + scale % 4
        assert memory[place] == given[row, scale]


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 260), scales=st.integers(1, 9), stack=st.integers(1, 3), seed=st.integers(0, 2**31))
def test_masked_layout_and_back(rows: int, scales: int, stack: int, seed: int) -> None:
    given = random_bytes(stack, rows, scales, seed=seed).view(torch.float8_e4m3fn)
    view = to_masked(given)
    high, wide = -(-rows // 128), -(-scales // 4)
    assert view.shape == (32, 4, high, 4, wide, stack)
    assert view.permute(5, 2, 4, 0, 1, 3).is_contiguous()  # memory (l, rm, rk, 32, 4, 4)
    assert (
        view.view(torch.uint8)[(rows - 1) % 32, (rows - 1) % 128 // 32, (rows - 1) // 128, 0, 0, stack - 1]
        == (given.view(torch.uint8)[stack - 1, rows - 1, 0])
    )
    assert torch.equal(from_masked(view, rows, scales).view(torch.uint8), given.view(torch.uint8))
    assert torch.equal(from_masked(view.contiguous(), rows, scales).view(torch.uint8), given.view(torch.uint8))


def test_wrong_sizes_of_swizzled_scales_are_named() -> None:
    with pytest.raises(KernelError, match=r"\[128, 4\] where whole tiles of 128 x 4 are \[256, 4\]"):
        unswizzle(torch.zeros(128, 4, dtype=torch.uint8), 129, 3)
    with pytest.raises(KernelError, match=r"\(32, 4, rows/128, 4, groups/4, l\)"):
        from_masked(torch.zeros(128, 4, dtype=torch.uint8), 128, 4)
    with pytest.raises(KernelError, match="scales of one byte"):
        swizzle(torch.zeros(128, 4))


def test_231_scale_columns_are_padded_with_one_of_zeros() -> None:
    # 29568 / 8 = 3696 columns a rank are 231 groups, 1 short of whole tiles; / 4 are 462, 2 short; / 2 are 924, whole.
    for ranks, groups, padding in ((8, 231, 1), (4, 462, 2), (2, 924, 0)):
        assert 29568 // ranks // 16 == groups
        scales = torch.full((128, groups), 0x38, dtype=torch.uint8)
        turned = swizzle(scales)
        assert turned.shape == (128, groups + padding)
        assert int((turned == 0).sum()) == 128 * padding


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 9),
    groups=st.integers(1, 5),
    above=st.floats(2.0**-100, 1.0, width=32),
    seed=st.integers(0, 2**31),
    activations=st.booleans(),
)
def test_checkpoints_are_written_as_they_were_read(
    rows: int, groups: int, above: float, seed: int, activations: bool
) -> None:
    given = matrix(rows, groups * 16, seed)
    input_scale = torch.tensor(0.0123)
    modelopt = {"weight": given.codes, "weight_scale": given.scales, "weight_scale_2": torch.tensor(above)}
    packed = {
        "weight_packed": given.codes,
        "weight_scale": given.scales,
        "weight_global_scale": torch.tensor([1 / above]),
    }
    if activations:
        modelopt["input_scale"] = input_scale
        packed["input_global_scale"] = input_scale.reciprocal().reshape(1)
    for convention, tensors in (("modelopt", modelopt), ("compressed-tensors", packed)):
        stored = read_nvfp4(tensors, convention)  # type: ignore[arg-type]
        written = write_nvfp4(stored, convention)  # type: ignore[arg-type]
        assert written.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert written[name].shape == tensor.shape and written[name].dtype == tensor.dtype
            assert torch.equal(written[name].flatten().view(torch.uint8), tensor.flatten().view(torch.uint8)), name


def test_one_matrix_stored_in_both_conventions_and_mislabelled() -> None:
    amax = 0.75
    values = torch.linspace(-amax, amax, 256).reshape(16, 16)
    weight = NVFP4.quantise(values)
    assert weight.global_scale is not None
    assert weight.global_scale.stored.item() == pytest.approx(2.790e-4, rel=1e-3)
    stored = StoredMatrix(weight, None)
    ours, theirs = write_nvfp4(stored, "modelopt"), write_nvfp4(stored, "compressed-tensors")
    assert theirs["weight_global_scale"].tolist() == pytest.approx([3584.0])
    a = read_nvfp4(ours, "modelopt").weight.dequantise()
    b = read_nvfp4(theirs, "compressed-tensors").weight.dequantise()
    assert torch.allclose(a, b, rtol=3e-7, atol=0)
    assert float((a - values).norm() / values.norm()) < 0.1
    mislabelled = theirs | {"weight_global_scale": torch.tensor([2.790e-4])}
    with pytest.raises(KernelError, match=r"convention looks reversed, stop: the median is 0\.000279") as error:
        read_nvfp4(mislabelled, "compressed-tensors")
    assert "divisor" in error.value.asked
    with pytest.raises(KernelError, match="convention looks reversed, stop: the median is 3584"):
        read_nvfp4(ours | {"weight_scale_2": torch.tensor(3584.0)}, "modelopt")
    # What would have come out: everything larger by the square of the divisor.
    wrong = Quantised(NVFP4, weight.codes, weight.scales, GlobalScale(torch.tensor([2.790e-4]), is_divisor=True))
    assert float(wrong.dequantise().norm() / a.norm()) == pytest.approx(1.28e7, rel=0.01)


def test_names_and_types_of_checkpoints_are_checked() -> None:
    given = matrix(4, 32)
    tensors = write_nvfp4(StoredMatrix(given, None), "modelopt")
    with pytest.raises(KernelError, match="weight_packed is missing among weight, weight_scale, weight_scale_2"):
        read_nvfp4(tensors, "compressed-tensors")
    with pytest.raises(KernelError, match=r"it is torch\.uint8"):
        read_nvfp4(tensors | {"weight_scale": given.scales.view(torch.uint8)}, "modelopt")
    with pytest.raises(KernelError, match="several global scales"):
        write_nvfp4(StoredMatrix(join_gate_up(given, given), None), "modelopt")


def test_gpt_oss_blocks_and_back() -> None:
    blocks, scales = random_bytes(2, 6, 3, 16), random_bytes(2, 6, 3, seed=1)
    stored = read_gpt_oss(blocks, scales)
    assert stored.format is MXFP4 and stored.shape == (2, 6, 96)
    back = write_gpt_oss(stored)
    assert torch.equal(back[0], blocks) and torch.equal(back[1], scales)
    with pytest.raises(KernelError, match=r"blocks are \[2, 6, 3, 16\] and scales \[2, 6, 2\]"):
        read_gpt_oss(blocks, scales[..., :2])


@pytest.mark.parametrize("order", ORDERS)
def test_orders_of_gate_and_up_and_back(order: Order) -> None:
    gate, up = matrix(6, 32, seed=3), matrix(6, 32, seed=5)
    w13 = join_gate_up(gate, up)
    one = Quantised(NVFP4, w13.codes, w13.scales, gate.global_scale)
    turned = reorder(one, "gate-up", order)
    assert same(reorder(turned, order, "gate-up"), one)
    values = turned.dequantise().T  # split works on the columns of a product
    for half, wanted in zip(split(values, order), (gate, up), strict=True):
        assert torch.equal(half.T, wanted.dequantise())
    for other in ORDERS:
        assert same(reorder(reorder(one, "gate-up", other), other, order), turned)


def test_rows_by_order() -> None:
    assert [rows_of(3, order).tolist() for order in ORDERS] == [
        [0, 1, 2, 3, 4, 5],
        [3, 4, 5, 0, 1, 2],
        [0, 3, 1, 4, 2, 5],
    ]


def test_unequal_global_scales_go_with_their_rows() -> None:
    gate, up = matrix(4, 32, seed=3, above=0.25), matrix(4, 32, seed=5, above=0.5)
    w13 = join_gate_up(gate, up)
    assert torch.equal(w13.dequantise(), torch.cat([gate.dequantise(), up.dequantise()]))
    turned = reorder(w13, "gate-up", "up-gate")
    assert torch.equal(turned.dequantise(), torch.cat([up.dequantise(), gate.dequantise()]))
    with pytest.raises(KernelError, match="global scales of their own"):
        reorder(w13, "gate-up", "interleaved")


def test_stacks_of_experts() -> None:
    experts = [join_gate_up(matrix(4, 32, seed=n), matrix(4, 32, seed=n + 9, above=0.5)) for n in range(3)]
    stack = stack_experts(experts)
    assert stack.shape == (3, 8, 32)
    assert all(same(stack[n], experts[n]) for n in range(3))
    assert torch.equal(stack.dequantise()[2], experts[2].dequantise())
    with pytest.raises(KernelError, match=r"they differ: nvfp4 \[4, 32\]; nvfp4 \[8, 32\]"):
        stack_experts([experts[0], matrix(4, 32)])


def test_rows_that_share_a_scale_are_not_taken_apart() -> None:
    with pytest.raises(KernelError, match="128 rows share a scale"):
        reorder(FP8_BLOCK.quantise(torch.ones(256, 128)), "gate-up", "up-gate")
