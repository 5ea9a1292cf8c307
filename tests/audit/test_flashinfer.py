"""FlashInfer as a library: entry points, backends of its FP4 product, every gate on the way; from released wheels."""

import pytest

from sublight.audit.engines.base import Declaration, Gate
from sublight.audit.engines.flashinfer import FLASHINFER, PRODUCT
from sublight.audit.ladder import Answer
from sublight.audit.source.tree import Sources
from tests.audit.reading import edited, target
from tests.audit.wheels import sources

pytestmark = pytest.mark.wheels

MASKED = "flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked"


@pytest.fixture(scope="module")
def old() -> Sources:
    return sources("flashinfer-python==0.6.3")


@pytest.fixture(scope="module")
def new() -> Sources:
    return sources("flashinfer-python==0.7.4")


def gates(wheel: Sources, symbol: str, capability: tuple[int, int], backend: str = "") -> tuple[Gate, ...]:
    return FLASHINFER.gates(wheel, symbol, target(capability), backend)


def test_the_assert_in_a_constructor_far_behind(old: Sources) -> None:
    first, second = gates(old, MASKED, (12, 0))
    assert (first.answer, first.targets) == (Answer.FAIL, ("10.0", "10.3"))
    assert first.proof.where == "flashinfer/cute_dsl/blockscaled_gemm.py:534"
    assert first.text == "assert sm_version in supported_sm_versions (left out by python -O)"
    assert (second.answer, second.proof.where) == (Answer.PASS, "flashinfer/cute_dsl/blockscaled_gemm.py:3018")
    assert [gate.answer for gate in gates(old, MASKED, (10, 3))] == [Answer.PASS, Answer.PASS]


def test_a_wrapper_that_lets_through_what_the_kernel_stops(new: Sources) -> None:
    found = gates(new, MASKED, (12, 0))
    assert found[0].proof.where == "flashinfer/gemm/kernels/grouped_gemm_masked_blackwell.py:660"
    assert found[0].answer is Answer.FAIL
    wrapper = next(gate for gate in found if gate.text == "major >= 10")
    assert wrapper.answer is Answer.PASS
    assert wrapper.targets == ("10.0", "10.3", "10.7", "12.0", "12.1")  # 10.7 by a branch of its own
    # The same line, moved: the answer follows the source.
    file = "flashinfer/gemm/kernels/grouped_gemm_masked_blackwell.py"
    widened = edited(new, {file: ('["sm_100", "sm_103", "sm_107"]\n', '["sm_100", "sm_103", "sm_120"]\n\n')})
    found = gates(widened, MASKED, (12, 0))
    assert all(gate.answer is Answer.PASS for gate in found)
    moved = next(gate for gate in found if gate.text.startswith("assert"))
    assert moved.proof.where == f"{file}:661"
    assert moved.targets == ("10.0", "10.3", "12.0")


@pytest.mark.parametrize(
    ("symbol", "capability", "answer", "targets"),
    [
        ("flashinfer.fused_moe.trtllm_fp4_block_scale_moe", (12, 0), Answer.FAIL, ("10.0", "10.3", "10.7")),
        ("flashinfer.fused_moe.trtllm_fp4_block_scale_moe", (10, 0), Answer.PASS, ("10.0", "10.3", "10.7")),
        (
            "flashinfer.fused_moe.cutlass_fused_moe",
            (8, 0),
            Answer.FAIL,
            ("8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"),
        ),
    ],
)
def test_builds_that_are_made_for_some_cards(
    old: Sources, symbol: str, capability: tuple[int, int], answer: Answer, targets: tuple[str, ...]
) -> None:
    found = gates(old, symbol, capability)
    assert (found[0].answer, found[0].targets) == (answer, targets)


def test_claims_are_told_from_gates(new: Sources) -> None:
    claim = gates(new, "flashinfer.fused_moe.b12x_fused_moe", (12, 0))[0]
    assert (claim.answer, claim.targets) == (Answer.PASS, ("12.0", "12.1"))
    assert claim.text == "@supported_compute_capability([120, 121]): a claim that refuses nobody"
    names = "flashinfer.fused_moe.cute_dsl_fused_moe"
    assert gates(new, names, (12, 0))[0].targets == ("10.0", "10.3", "10.7")


@pytest.mark.parametrize(
    ("backend", "capability", "answer"),
    [
        ("b12x", (12, 0), Answer.PASS),
        ("b12x", (9, 0), Answer.FAIL),
        ("trtllm", (12, 0), Answer.FAIL),
        ("trtllm", (10, 3), Answer.PASS),
        ("cutlass", (12, 1), Answer.PASS),
        ("cudnn", (9, 0), Answer.FAIL),
    ],
)
def test_backends_of_the_fp4_product(new: Sources, backend: str, capability: tuple[int, int], answer: Answer) -> None:
    found = gates(new, PRODUCT, capability, backend)
    assert found[0].answer is answer
    assert found[0].text.startswith("@supported_compute_capability")


def test_what_is_declared(old: Sources, new: Sources) -> None:
    assert [item.name for item in FLASHINFER.declared(old, "fp4-gemm")] == ["cudnn", "trtllm", "cutlass"]
    names = [item.name for item in FLASHINFER.declared(new, "fp4-gemm")]
    assert names == ["cudnn", "trtllm", "cutlass", "cute-dsl", "cutedsl_low_latency", "b12x", "cake"]
    entries = {item.name for item in FLASHINFER.declared(old, "moe")}
    assert entries >= {
        "flashinfer.fused_moe.cutlass_fused_moe",
        "flashinfer.fused_moe.trtllm_fp4_block_scale_moe",
        MASKED,
    }
    assert "flashinfer.fused_moe.CuteDslMoEWrapper" in {item.name for item in FLASHINFER.declared(new, "moe")}
    assert not any("gen_" in name for name in entries)


def test_routes_go_by_format(old: Sources) -> None:
    def answer(name: str) -> tuple[Answer, str]:
        route = FLASHINFER.route(old, Declaration("moe", f"flashinfer.{name}", "", None, None, ()), target((10, 0)))
        return route.answer, route.destination

    assert answer("fused_moe.trtllm_fp4_block_scale_moe") == (
        Answer.PASS,
        "flashinfer.fused_moe.core.trtllm_fp4_block_scale_moe",
    )
    assert answer("fused_moe.trtllm_fp8_block_scale_moe")[0] is Answer.FAIL
    assert answer("fused_moe.cutlass_fused_moe")[0] is Answer.PASS
    assert answer("cute.grouped_gemm_nt_masked") == (Answer.FAIL, "")


def test_needs_of_a_kernel_module(old: Sources, new: Sources) -> None:
    for wheel in (old, new):
        route = FLASHINFER.route(wheel, Declaration("moe", MASKED, "", None, None, ()), target((10, 0)))
        assert "cutlass" in {need.symbol for need in route.needs}
        assert route.needs[0].symbol == MASKED


def test_nothing_takes_a_card(old: Sources) -> None:
    assert FLASHINFER.auto(old, "fp4-gemm", target((9, 0))).answer is Answer.FAIL
    assert FLASHINFER.auto(old, "fp4-gemm", target((12, 0))).why.endswith("cudnn, cutlass")


def test_variables(old: Sources) -> None:
    known = FLASHINFER.known_variables(old)
    assert known is not None
    assert {"FLASHINFER_CUDA_ARCH_LIST", "FLASHINFER_DISABLE_JIT", "FLASHINFER_CUBIN_DIR"} <= known
    assert "FLASHINFER_NOBODY_READS_THIS" not in known


def test_a_refusal_of_a_backend_that_nobody_asked_for_refuses_no_card() -> None:
    """The default of `backend` leads elsewhere: what "cute-dsl" alone is refused for is on some ways only."""
    wheel = sources("flashinfer-python==0.7.2")
    found = gates(wheel, "flashinfer.mla.trtllm_batch_decode_with_kv_cache_mla", (12, 0))
    assert not [gate for gate in found if gate.answer is Answer.FAIL]
    assert any("supported_major_versions=[12]" in gate.text for gate in found)
