"""The portable layer in Triton: run by its interpreter, compiled for GPUs that are not here, chosen by target."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from sublight.errors import KernelError
from sublight.facts.gpu import get_gpu
from sublight.facts.model import read_model
from sublight.facts.workload import Layout
from sublight.kernels.catalogue import COMPILED, Limits, kernel_named
from sublight.kernels.fused_portable import configure_native, configure_portable
from sublight.kernels.heuristics import choose
from sublight.kernels.numerics.formats import MXFP4
from sublight.kernels.problem import MoeProblem
from sublight.kernels.reference import Experts
from tests.torch.crosscompile import script
from tests.torch.layers import experts_of


def glm(tokens: int, activations: Any = "bf16") -> MoeProblem:
    return MoeProblem.of(read_model("glm-5-nvfp4"), Layout(tp=8), tokens, activations)


@pytest.mark.parametrize("card", ["a100-80gb-sxm", "l40s", "b300", "gb10", "b200", "rtx-pro-6000-server"])
def test_every_card_has_a_portable_kernel_and_none_claims_to_have_been_run(card: str) -> None:
    for tokens in (1, 17, 4096):
        wide = msgspec.structs.replace(glm(tokens), activation="swiglu-oai")  # which the CUDA kernels do not
        choice = choose(wide, get_gpu(card))
        assert (choice.kernel.name, choice.status) == ("fused-triton", COMPILED)


def test_four_bit_activations_take_the_units_for_them_where_there_are_some() -> None:
    chosen = {card: choose(glm(1, "nvfp4"), get_gpu(card)) for card in ("h200", "l40s", "b200", "b300", "gb10")}
    assert {card: choice.kernel.name for card, choice in chosen.items()} == {
        "h200": "fused-triton",
        "l40s": "fused-triton",
        "b200": "fused-triton-fp4",
        "b300": "fused-triton-fp4",
        "gb10": "fused-triton-fp4",
    }
    assert chosen["b200"].status == COMPILED
    assert chosen["b200"].reason.endswith("before fused-triton (priority 0 against 1)")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hidden_size": 160}, "hidden_size 160 is no multiple of 64"),
        ({"routing": "softmax"}, "routing is 'softmax', it does given"),
    ],
)
def test_what_it_does_not_do_is_refused(change: dict[str, Any], why: str) -> None:
    sizes = {"tokens": 1, "hidden_size": 128, "intermediate_size": 64, "num_experts": 4, "top_k": 2}
    problem = MoeProblem(**sizes | change)
    with pytest.raises(KernelError, match=f"fused-triton: {why}"):
        choose(problem, get_gpu("h200"), [kernel_named("fused-triton")])


def test_tiles_follow_the_pairs_of_an_expert_and_leave_every_multiprocessor_a_block() -> None:
    card = Limits.of(get_gpu("rtx-pro-6000-server"))
    tokens = (1, 4, 16, 64, 1024, 8192)
    plans = [configure_portable(glm(m), card) for m in tokens]
    assert [p["BLOCK_M"] for p in plans] == [8, 8, 8, 8, 64, 64]  # 1024 tokens: 32 pairs an expert, and often 40
    # 188 multiprocessors, each with two blocks or more: 8 experts have 256 of 16 channels, 103 have 412 of 64
    assert [p["UP_N"] for p in plans] == [16, 16, 64, 64, 64, 64]
    assert [p["DOWN_N"] for p in plans] == [64, 128, 128, 128, 128, 128]
    assert configure_native(glm(1, "nvfp4"), Limits.of(get_gpu("b200")))["UP_N"] == 64  # gate and up: 128 rows
    with pytest.raises(KernelError, match="one stage takes"):
        configure_portable(glm(1), Limits(target="sm_90", shared_memory_bytes=8000, sm_count=132))


INTERPRETED = """
from dataclasses import replace

import msgspec, torch
from sublight.kernels.fused import problem_of
from sublight.kernels.fused_portable import configure_portable
from sublight.kernels.catalogue import Limits
from sublight.kernels import fused_triton_layer
from sublight.kernels.fused_triton_layer import prepare_portable
from sublight.kernels.numerics.formats import FP8_BLOCK, MXFP4, NVFP4
from sublight.kernels.numerics.gate_up import reorder
from sublight.kernels.numerics.quantised import GlobalScale
from sublight.kernels.reference import Experts, InputScales, moe_forward
from tests.torch.layers import experts_of, normal, routing

card = Limits(target="sm_90", shared_memory_bytes=232448, sm_count=132)


def check(
    form, tokens, hidden, width, act="swiglu", order="gate-up", bias=False, first=0, four=False, count=3, top_k=2
):
    # fp16 throughout: the interpreter computes bf16 with its bit patterns
    w13, w2 = experts_of(form, count, hidden, width, gated=act != "relu2")
    if order != "gate-up":
        if order == "interleaved" and form.has_global:
            w13 = replace(w13, global_scale=GlobalScale(w13.global_scale.stored[:, :1].contiguous()))
        w13 = reorder(w13, "gate-up", order)
    biases = (normal(count, w13.shape[1], seed=5), normal(count, hidden, seed=6).bfloat16()) if bias else (None, None)
    scales = InputScales(torch.linspace(400, 700, count), torch.linspace(30, 60, count), torch.float16)
    experts = Experts(w13, w2, act, order, *biases, first=first, input_scales=scales if four else None)
    problem = problem_of(experts, tokens, top_k, expert_ranks=2)
    if not four:
        problem = msgspec.structs.replace(problem, activation_format="fp16")
    x, (ids, weights) = normal(tokens, hidden, seed=9).half(), routing(tokens, 2 * count, top_k)
    ids[0, 0] = -1
    ids += 1 if first else 0
    out = torch.full((tokens, hidden), float("nan")).half()
    layer = prepare_portable(problem, experts, torch.device("cpu"), configure_portable(problem, card))
    layer(x, ids, weights, out)
    wanted = moe_forward(x, ids, weights, experts, experts.input_scales)
    print(f"{float((out.float() - wanted).norm() / wanted.norm()):.1e}", flush=True)


check(NVFP4, 3, 64, 64)
check(NVFP4, 40, 192, 128, first=4, count=4, top_k=3)
check(NVFP4, 5, 128, 192, order="up-gate")
check(NVFP4, 4, 128, 64, act="relu2")
check(NVFP4, 4, 64, 64, act="geglu", order="interleaved")
check(MXFP4, 4, 128, 64, act="swiglu-oai", order="interleaved", bias=True)
check(FP8_BLOCK, 4, 128, 256)
check(NVFP4, 3, 192, 128, four=True)
check(NVFP4, 37, 64, 64, four=True, order="up-gate")
fused_triton_layer.ROWS_BYTES = 4096  # rows of eight tokens: three calls
check(NVFP4, 20, 64, 64)
"""


def test_the_interpreter_computes_the_oracle(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    errors = [float(line) for line in script(INTERPRETED, tmp_path, TRITON_INTERPRET="1").split()]
    assert len(errors) == 10
    assert max(errors) < 6e-4  # what rounding to fp16 twice makes: 2**-11 of a value at most


def run_ptx(text: str, word: int, pair: int, dtype: torch.dtype) -> list[int]:
    """The four result registers of a text of inline assembly, for the few instructions that it is made of."""
    registers = {"$4": word, "$5": pair}

    def value(name: str) -> int:
        return registers[name] if name in registers else int(name, 0)

    def halves(register: int) -> torch.Tensor:
        return torch.tensor([register & 0xFFFF, register >> 16], dtype=torch.int32).to(torch.uint16).view(dtype)

    for line in text.strip("{}").split(";"):
        operation, *names = line.replace(",", " ").split() or [".reg"]
        if operation == ".reg":
            continue
        a, b, *rest = (value(name) for name in (*names[1:], "0"))
        match operation:
            case "shl.b32":
                result = a << b
            case "shr.b32":
                result = a >> b
            case "and.b32":
                result = a & b
            case "lop3.b32":
                assert rest[1] == 0xEA  # (a & b) | c
                result = a & b | rest[0]
            case "mov.b32":
                result = a
            case "prmt.b32":
                both = a | b << 32
                result = sum((both >> 8 * (rest[0] >> 4 * byte & 7) & 255) << 8 * byte for byte in range(4))
            case _:
                assert operation in ("fma.rn.bf16x2", "fma.rn.f16x2") and rest[0] == 0x80008000  # plus -0
                low, high = (halves(a) * halves(b)).view(torch.uint16).to(torch.int64).tolist()
                result = low | high << 16
        registers[names[0]] = result & 0xFFFFFFFF
    return [registers[f"${number}"] for number in range(4)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_eight_codes_are_decoded_to_what_they_mean(dtype: torch.dtype) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from sublight.kernels import fused_triton_operands as operands
    from sublight.kernels.numerics.minifloat import from_e2m1

    half = dtype == torch.bfloat16
    text = (operands._DECODE_BF16 if half else operands._DECODE_FP16).value
    lift, unit = (2.0**119, 2.0**7) if half else (2.0**6, 2.0**8)
    for scale in (448.0, 1.0, 0.40625, 2.0**-6, 2.0**-9):
        bits = int(torch.tensor([scale * lift]).to(dtype).view(torch.uint16).item())
        for first in range(16):
            codes = [(first + 3 * place) % 16 for place in range(8)]
            word = sum(code << 4 * place for place, code in enumerate(codes))
            got = torch.tensor(run_ptx(text, word, bits | bits << 16, dtype), dtype=torch.int64)
            values = torch.stack((got & 0xFFFF, got >> 16), dim=1).flatten().to(torch.uint16).view(dtype)
            wanted = from_e2m1(torch.tensor(codes, dtype=torch.uint8)) * scale
            assert torch.equal(values.double() * unit, wanted.double()), (scale, codes)


@pytest.mark.parametrize(
    ("activations", "exponent", "way"),
    [
        ("bf16", 8, "packed"),
        ("bf16", 9, "plain"),
        ("bf16", 127, "plain"),
        ("fp16", 9, "packed"),
        ("fp16", 10, "plain"),
    ],
)
def test_block_scales_that_pairs_cannot_hold_are_decoded_one_by_one(activations: Any, exponent: int, way: str) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from sublight.kernels.fused_triton_layer import _way

    sizes: dict[str, Any] = {"tokens": 1, "hidden_size": 64, "intermediate_size": 64, "num_experts": 2, "top_k": 1}
    problem = MoeProblem(**sizes, weight_format="mxfp4", global_scale="none", activation_format=activations)
    w13, w2 = experts_of(MXFP4, 2, 64, 64)
    w13.scales[0, 0, 0] = 255  # NaN says nothing of the others
    for matrix in (w13, w2):
        before = matrix.scales[1, 3, 1].item()
        matrix.scales[1, 3, 1] = 127 + exponent
        assert _way(problem, Experts(w13, w2), torch.device("cuda"), 90) == way
        matrix.scales[1, 3, 1] = before
    assert _way(problem, Experts(w13, w2), torch.device("cuda"), 90) == "packed"
    # Why: what is multiplied by in pairs is infinite for the one, and is not for the other.
    dtype, lift = (torch.float16, 2.0**6) if activations == "fp16" else (torch.bfloat16, 2.0**119)
    moved = torch.tensor([2.0**exponent], dtype=torch.float64) * lift
    assert moved.to(dtype).isinf().item() == (way == "plain")


def test_weights_that_fp16_cannot_hold_are_refused_by_name() -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from sublight.kernels.fused_triton_layer import _way

    sizes: dict[str, Any] = {"tokens": 1, "hidden_size": 64, "intermediate_size": 64, "num_experts": 2, "top_k": 1}
    problem = MoeProblem(**sizes, weight_format="mxfp4", global_scale="none", activation_format="fp16")
    w13, w2 = experts_of(MXFP4, 2, 64, 64)
    w2.scales[1, 3, 1] = 127 + 13
    assert _way(problem, Experts(w13, w2), torch.device("cuda"), 90) == "plain"  # 6 * 2**13 is below 65504
    w2.scales[1, 3, 1] = 127 + 14
    with pytest.raises(KernelError, match=r"block scales of w2: the largest is 2\*\*14, and fp16 ends before"):
        _way(problem, Experts(w13, w2), torch.device("cuda"), 90)


CASES = {
    "h200 1 bf16": {"HMMA.16816.F32.BF16", "HGMMA.64x16x16.F32.BF16"},
    "a100-80gb-sxm 64 bf16": {"HMMA.16816.F32.BF16"},
    "rtx-pro-6000-server 64 bf16": {"HMMA.16816.F32.BF16", "F2FP.BF16.E2M1.UNPACK_B"},  # from Triton 3.9 on
    "rtx-pro-6000-server 1 nvfp4": {"OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"},
    "rtx-pro-6000-server 1024 nvfp4": {"OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"},
    "b200 16 nvfp4": {"UTCOMMA.4X"},
}
IN_PTX = {
    "rtx-pro-6000-server": "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
    "b200": "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale",
}
CROSS_COMPILED = r"""
import sys
import torch
from sublight.facts.gpu import get_gpu
from sublight.facts.model import read_model
from sublight.facts.workload import Layout
from sublight.kernels import fused_triton
from sublight.kernels.catalogue import kernel_named
from sublight.kernels.heuristics import choose
from sublight.kernels.problem import MoeProblem
from tests.torch.crosscompile import LAYER, Recorder, launch_on_meta, machine_products, products

for case in sys.argv[1:]:
    card, tokens, activations = case.split()
    problem = MoeProblem.of(read_model("glm-5-nvfp4"), Layout(tp=8), int(tokens), activations)
    # Four-bit activations: the catalogue's own choice. Otherwise other kernels come first on some cards.
    named = None if activations == "nvfp4" else [kernel_named("fused-triton")]
    choice = choose(problem, get_gpu(card), named)
    with Recorder.of(fused_triton, choice.target, *LAYER) as recorders:
        launch_on_meta(choice, problem)
    print(choice.kernel.name)
    for name in ("up_product", "down_product"):
        built, = recorders[name].built
        fits = built.metadata.shared <= get_gpu(card).shared_memory_per_block_bytes.known
        print(fits, ",".join(sorted(products(built))), ",".join(sorted(machine_products(built))))
"""


def test_what_dispatch_returns_compiles_for_its_target_and_uses_its_tensor_cores(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    lines = iter(script(CROSS_COMPILED, tmp_path, *CASES).splitlines())
    for case, wanted in CASES.items():
        card, _, activations = case.split()
        assert next(lines) == ("fused-triton-fp4" if activations == "nvfp4" else "fused-triton"), case
        for product in ("up", "down"):
            fits, ptx, sass = next(lines).split()
            assert fits == "True", (case, product)
            assert (IN_PTX[card] if activations == "nvfp4" else "mma") in ptx, (case, product)
            found = set(sass.split(","))
            assert found <= wanted if len(wanted) > 1 and "h200" in case else found == wanted, (case, product)
