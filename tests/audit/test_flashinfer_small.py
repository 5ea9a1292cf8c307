"""A small library laid out as FlashInfer is: claims, requirements and asserts, without any wheel."""

from pathlib import Path

import pytest

from sublight.audit.engines.flashinfer import FLASHINFER
from sublight.audit.engines.flashinfer.gates import gates
from sublight.audit.ladder import Answer
from sublight.audit.source.tree import Sources
from tests.audit.reading import target, written

LIBRARY = {
    "flashinfer/__init__.py": """
        from .fused_moe import native_fused_moe as native_fused_moe
        from .gemm import mm_fp4 as mm_fp4
        """,
    "flashinfer/utils.py": """
        import torch
        def get_compute_capability(device):
            return torch.cuda.get_device_capability(device)
        def supported_compute_capability(cards): ...
        def backend_requirement(checks, common_check=None): ...
        """,
    "flashinfer/gemm.py": """
        import os
        import cudnn
        from .utils import backend_requirement, supported_compute_capability
        _NEW = [120, 121]
        @supported_compute_capability([100, 103])
        def _first(a): ...
        @supported_compute_capability(_NEW)
        def _second(a):
            if not os.environ.get("FLASHINFER_SECOND"):
                raise ValueError("off")
        def _common(a): ...
        @backend_requirement({"first": _first, "second": _second}, common_check=_common)
        def mm_fp4(a, backend="auto"): ...
        """,
    "flashinfer/fused_moe/__init__.py": """
        from .core import native_fused_moe, trtllm_fp8_moe, gen_native_fused_moe, MoEConfig, MoEWrapper
        """,
    "flashinfer/fused_moe/core.py": """
        import torch
        from ..utils import get_compute_capability, supported_compute_capability
        @supported_compute_capability([100, 103, 120])
        def native_fused_moe(x, weights):
            major, minor = get_compute_capability(x.device)
            return Kernel(f"sm_{major}{minor}")(x)
        class Kernel:
            def __init__(self, version):
                assert version in ("sm_100", "sm_103"), "not written"
        def trtllm_fp8_moe(x): ...
        def gen_native_fused_moe(): ...
        class MoEConfig:
            def supported(self, arch):
                return arch >= 100
        class MoEWrapper:
            @supported_compute_capability([90])
            def __init__(self): ...
        """,
}


@pytest.fixture
def library(tmp_path: Path) -> Sources:
    return written(tmp_path, LIBRARY)


def test_entry_points_once_each(library: Sources) -> None:
    assert [item.name for item in FLASHINFER.declared(library, "moe")] == [
        "flashinfer.fused_moe.native_fused_moe",
        "flashinfer.fused_moe.trtllm_fp8_moe",
        "flashinfer.fused_moe.MoEWrapper",
    ]


def test_a_claim_that_is_wider_than_the_kernel(library: Sources) -> None:
    kernel, claim = FLASHINFER.gates(library, "flashinfer.native_fused_moe", target((12, 0)))
    assert (kernel.answer, kernel.targets) == (Answer.FAIL, ("10.0", "10.3"))
    assert kernel.proof.where == "flashinfer/fused_moe/core.py:10"
    assert (claim.answer, claim.targets) == (Answer.PASS, ("10.0", "10.3", "12.0"))
    assert claim.text.endswith("a claim that refuses nobody")


@pytest.mark.parametrize(
    ("backend", "answer", "targets"),
    [("first", Answer.FAIL, ("10.0", "10.3")), ("second", Answer.PASS, ("12.0", "12.1"))],
)
def test_backends_of_a_requirement(library: Sources, backend: str, answer: Answer, targets: tuple[str, ...]) -> None:
    declared = {item.name: item for item in FLASHINFER.declared(library, "fp4-gemm")}
    assert list(declared) == ["first", "second"]
    route = FLASHINFER.route(library, declared[backend], target((12, 0)))
    assert (route.answer, route.destination) == (Answer.PASS, "flashinfer.gemm.mm_fp4")
    assert (route.gates[0].answer, route.gates[0].targets) == (answer, targets)
    assert not route.gates[0].text.endswith("refuses nobody")
    assert [need.symbol for need in route.needs] == ["flashinfer.mm_fp4", "cudnn", "torch"]


def test_the_claim_of_a_constructor_and_a_class_that_is_asked(library: Sources) -> None:
    (claim,) = FLASHINFER.gates(library, "flashinfer.fused_moe.MoEWrapper", target((9, 0)))
    assert (claim.answer, claim.targets) == (Answer.PASS, ("9.0",))
    (own,) = FLASHINFER.gates(library, "flashinfer.fused_moe.MoEConfig", target((9, 0)))
    assert (own.answer, own.text) == (Answer.FAIL, "arch >= 100")


def test_what_is_left_for_a_card(library: Sources) -> None:
    assert FLASHINFER.auto(library, "fp4-gemm", target((12, 0))).why.endswith(": second")
    assert FLASHINFER.auto(library, "fp4-gemm", target((9, 0))).answer is Answer.FAIL
    assert FLASHINFER.auto(library, "moe", target((9, 0))).answer is Answer.NOT_KNOWN
    assert FLASHINFER.known_variables(library) == {"FLASHINFER_SECOND"}


def test_no_such_library(tmp_path: Path) -> None:
    empty = written(tmp_path, {"other/__init__.py": ""})
    assert FLASHINFER.declared(empty, "moe") == ()
    assert FLASHINFER.declared(empty, "fp4-gemm") == ()
    assert FLASHINFER.gates(empty, "flashinfer.mm_fp4", target((9, 0))) == ()


def test_the_check_that_all_backends_share_counts_for_each_and_the_narrowest_comes_first(tmp_path: Path) -> None:
    text = """
        from .utils import backend_requirement, supported_compute_capability
        @supported_compute_capability([100, 103, 120])
        def _wide(a): ...
        @supported_compute_capability([100])
        def _narrow(a): ...
        @supported_compute_capability([90, 100, 103, 120])
        def _common(a): ...
        @backend_requirement({"wide": _wide, "narrow": _narrow}, common_check=_common)
        def mm_fp4(a, backend="auto"): ...
        """
    library = written(tmp_path, {**LIBRARY, "flashinfer/gemm.py": text})
    for backend, lists in (("wide", [3, 4]), ("narrow", [1, 4])):
        found = gates(library, "flashinfer.mm_fp4", (10, 0), backend)
        assert [(gate.answer, len(gate.targets)) for gate in found] == [(Answer.PASS, count) for count in lists]
    refused = gates(library, "flashinfer.mm_fp4", (8, 9), "wide")
    assert [(gate.answer, len(gate.targets)) for gate in refused] == [(Answer.FAIL, 3), (Answer.FAIL, 4)]
