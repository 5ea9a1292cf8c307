"""The decode kernel's layout: an exact round trip, and bit operations that give E2M1's values at every place."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.errors import KernelError
from sublight.kernels.cuda.layout import decode_word, pack_experts, unpack_experts
from sublight.kernels.numerics.formats import MXFP4, NVFP4
from sublight.kernels.numerics.quantised import GlobalScale, Quantised

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def matrix(experts: int, rows: int, columns: int, parts: int, seed: int) -> Quantised:
    """Any codes, any scale that is no NaN and not negative."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, (experts, rows, columns // 2), dtype=torch.uint8, generator=generator)
    scales = torch.randint(0, 0x7F, (experts, rows, columns // 16), dtype=torch.uint8, generator=generator)
    above = GlobalScale(torch.rand(experts, parts, generator=generator) + 0.1)
    return Quantised(NVFP4, codes, scales.view(torch.float8_e4m3fn), above)


def bits(scales: torch.Tensor) -> torch.Tensor:
    return scales.view(torch.uint8)


@settings(deadline=None, max_examples=30)  # the first example builds the tables
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.sampled_from([1, 2]), st.integers(0, 2**32))
def test_packing_loses_no_bit(experts: int, inter_blocks: int, hidden_blocks: int, parts: int, seed: int) -> None:
    inter, hidden = 64 * inter_blocks, 64 * hidden_blocks
    w13, w2 = matrix(experts, 2 * inter, hidden, parts, seed), matrix(experts, hidden, inter, 1, seed + 1)
    packed = pack_experts(w13, w2)
    assert packed.w13.numel() == w13.codes.numel() + w13.scales.numel()
    assert packed.w2.numel() == w2.codes.numel() + w2.scales.numel()
    assert (packed.experts, packed.inter, packed.hidden) == (experts, inter, hidden)
    for before, after in zip((w13, w2), unpack_experts(packed), strict=True):
        assert torch.equal(before.codes, after.codes)
        assert torch.equal(bits(before.scales), bits(after.scales))
    gate_up = w13.global_scale.stored.expand(experts, 2)
    assert torch.equal(packed.scale13, gate_up)
    assert torch.equal(packed.scale2, w2.global_scale.stored[:, 0])


def test_every_code_at_every_place_decodes_to_its_value() -> None:
    """A word holds eight codes: columns 4i .. 4i + 3 of rows g and g + 8. Decoded, each is a bf16 times 2^-126."""
    for place in range(8):
        column, row = place % 4, place // 4 * 8
        for code in range(16):
            codes = torch.zeros(16, 64, dtype=torch.int64)
            codes[row, column] = code
            registers = decode_word(first_word(codes))
            values = torch.tensor([half(r, side) for r in registers for side in (0, 1)])
            wanted = torch.zeros(4, 2)
            wanted[2 * (column // 2) + row // 8, column % 2] = E2M1[code % 8] * (-1 if code > 7 else 1)
            assert torch.equal(values, wanted.flatten()), (place, code)


def first_word(codes: torch.Tensor) -> torch.Tensor:
    """Of lane 0 and its first mma, in the down matrix of one expert."""
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    rows = torch.zeros(64, 32, dtype=torch.uint8)
    rows[:16] = packed
    scales = torch.full((1, 64, 4), 0x38, dtype=torch.uint8).view(torch.float8_e4m3fn)
    w2 = Quantised(NVFP4, rows.unsqueeze(0), scales, GlobalScale(torch.ones(1, 1)))
    layout = pack_experts(matrix(1, 128, 64, 1, 0), w2).w2
    return layout[0, 0, 0, :4].contiguous().view(torch.int32).long() & 0xFFFFFFFF


def half(register: torch.Tensor, side: int) -> float:
    """The upper or lower bf16 of a register, times 2^126."""
    pattern = (int(register) >> 16 * side & 0xFFFF) << 16
    return float(np.array([pattern], dtype=np.uint32).view(np.float32)[0].astype(np.float64) * 2.0**126)


def test_a_code_times_its_scale_is_exact_in_bf16() -> None:
    """The kernel multiplies value * 2^-126 by scale * 2^112 in bf16, the scale having come through fp16's bits."""
    scales = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn)
    shifted = (scales.half().view(torch.int16).int() >> 3).to(torch.int16).view(torch.bfloat16)  # scale * 2^-112
    large = torch.tensor(2.0**112, dtype=torch.bfloat16)
    scaled = shifted * large * large
    assert torch.equal(scaled.double(), scales.double() * 2.0**112)
    values = torch.tensor(E2M1, dtype=torch.float64)
    codes = (values * 2.0**-126).to(torch.bfloat16)
    products = codes[:, None].double() * scaled[None].double()
    assert torch.equal(products, (values[:, None] * scales.double()[None]) * 2.0**-14)
    assert torch.equal(products.to(torch.bfloat16).double(), products)


def test_a_scale_that_the_kernel_cannot_read_is_refused() -> None:
    w13, w2 = matrix(1, 128, 64, 1, 0), matrix(1, 64, 64, 1, 1)
    for wrong in (0x7F, 0x80, 0xB8):
        bits(w2.scales)[0, 5, 3] = wrong
        with pytest.raises(KernelError, match="a scale of w2 is negative or NaN"):
            pack_experts(w13, w2)


def test_what_is_no_layer_of_nvfp4_is_refused() -> None:
    w13, w2 = matrix(1, 128, 64, 1, 0), matrix(1, 64, 64, 1, 1)
    with pytest.raises(KernelError, match="intermediate_size 96 is no multiple of 64"):
        pack_experts(matrix(1, 192, 64, 1, 0), matrix(1, 64, 96, 1, 1))
    with pytest.raises(KernelError, match=r"w2 is \[1, 128, 64\] beside w13 \[1, 128, 64\]"):
        pack_experts(w13, matrix(1, 128, 64, 1, 1))
    codes = torch.zeros(1, 64, 32, dtype=torch.uint8)
    other = MXFP4.quantise(torch.zeros(1, 64, 64)) if hasattr(MXFP4, "quantise") else None
    assert other is not None and other.codes.shape == codes.shape
    with pytest.raises(KernelError, match="w2 is mxfp4"):
        pack_experts(w13, other)
    assert unpack_experts(pack_experts(w13, w2))[1].shape == (1, 64, 64)


def test_a_shared_expert_becomes_experts_of_the_routed_width() -> None:
    """Its columns of w2 are cut as its rows of gate and of up are, so that the parts' outputs add up to its own."""
    w13, w2 = matrix(3, 128, 192, 2, 0), matrix(3, 192, 64, 1, 1)
    shared13, shared2 = matrix(1, 256, 192, 1, 2), matrix(1, 192, 128, 1, 3)
    packed = pack_experts(w13, w2, (shared13, shared2))
    assert (packed.experts, packed.shared, packed.inter) == (3, 2, 64)
    first, second = unpack_experts(packed)
    assert torch.equal(first.codes[:3], w13.codes) and torch.equal(bits(second.scales)[:3], bits(w2.scales))
    gate, up = shared13[0].dequantise().chunk(2)
    down = shared2[0].dequantise()
    for part in range(2):
        rows = slice(64 * part, 64 * part + 64)
        assert torch.equal(first[3 + part].dequantise(), torch.cat((gate[rows], up[rows])))
        assert torch.equal(second[3 + part].dequantise(), down[:, rows])
    with pytest.raises(KernelError, match=r"its width is 192\. Try: a multiple of the routed experts' width, 128"):
        pack_experts(
            matrix(1, 256, 64, 1, 0), matrix(1, 64, 128, 1, 1), (matrix(1, 384, 64, 1, 2), matrix(1, 64, 192, 1, 3))
        )
    with pytest.raises(KernelError, match=r"its w13 is \[1, 128, 128\]"):
        pack_experts(w13, w2, (matrix(1, 128, 128, 1, 2), matrix(1, 128, 64, 1, 3)))
