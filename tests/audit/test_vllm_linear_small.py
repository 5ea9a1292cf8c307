"""A small engine that chooses the kernel of linear layers as vLLM does: names without one, and what a class calls."""

from pathlib import Path

import pytest

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.engines.vllm import VLLM
from sublight.audit.ladder import Answer
from tests.audit.reading import target, written
from tests.audit.test_flashinfer_small import LIBRARY
from tests.audit.test_vllm_small import ENGINE

LINEAR = "vllm/model_executor/kernels/linear"

KERNELS = {
    "vllm/config/__init__.py": "def get_current_vllm_config(): ...\n",
    "vllm/config/kernel.py": """
        from typing import Literal
        LinearBackend = Literal["auto", "first", "second", "asked", "other"]
        """,
    "vllm/engine/arg_utils.py": 'parser.add_argument("--linear-backend")\n',
    "vllm/utils/products.py": """
        def wrapped(a, backend):
            from flashinfer import mm_fp4
            return mm_fp4(a, backend=backend)
        """,
    f"{LINEAR}/kernels.py": """
        import torch
        from vllm.platforms import current_platform
        from vllm.utils.products import wrapped
        class Kernel:
            def __init__(self, config=None): ...
        class First(Kernel):
            @classmethod
            def is_supported(cls):
                return True, None
            def apply_weights(self, layer, x):
                return wrapped(x, backend="first")
        class Second(Kernel):
            @classmethod
            def is_supported(cls):
                return True, None
            def apply_weights(self, layer, x):
                return wrapped(x, backend="second")
        class Asked(Kernel):
            @classmethod
            def is_supported(cls):
                if not current_platform.at_least((9, 0)):
                    return False, "asked needs 9.0"
                if not torch.ops._C.takes_this_card():
                    return False, "it was not built"
                return True, None
        """,
    f"{LINEAR}/__init__.py": """
        import logging
        from vllm.model_executor.kernels.linear.kernels import Asked, First, Second
        logger = logging.getLogger(__name__)
        NAMES = {"first": {First}, "second": {Second}, "asked": {Asked}}
        def init_nvfp4_linear_kernel():
            from vllm.config import get_current_vllm_config
            name = get_current_vllm_config().kernel_config.linear_backend
            kernels = [Asked, First, Second]
            if name != "auto":
                kept = [kernel for kernel in kernels if kernel in NAMES.get(name, set())]
                if not kept:
                    logger.warning("--linear-backend=%s has no kernel; using automatic selection.", name)
                kernels = kept or kernels
            reasons = []
            for kernel in kernels:
                supported, reason = kernel.is_supported()
                if supported:
                    return kernel(None)
                reasons.append(reason)
            raise ValueError(f"no kernel: {reasons}")
        """,
}


def asked(folder: Path, name: str, capability: tuple[int, int], *, library: bool = False, **changed: str) -> Route:
    files = {**ENGINE, **KERNELS, **(LIBRARY if library else {})}
    files |= {path: files[path].replace(*changed["edit"].split(" => ")) for path in changed.get("where", "").split()}
    declaration = Declaration("fp4-gemm", name, f"--linear-backend {name}", True, None, ())
    return VLLM.route(written(folder, files), declaration, target(capability))


def test_a_name_without_a_kernel_comes_to_what_no_name_does_where_that_is_open(tmp_path: Path) -> None:
    """One list is walked in both cases: what only a call tells for the one, only a call tells for the other."""
    alone = asked(tmp_path, "auto", (12, 0))
    assert alone.answer is Answer.NOT_KNOWN
    assert alone.why.startswith("Asked or First: depends on the answer of the compiled torch.ops._C.takes_this_card")
    named = asked(tmp_path, "other", (12, 0))
    assert (named.answer, named.destination) == (Answer.FAIL, "")
    assert named.why == f"accepted, but other has no kernel for NVFP4 layers: runs what no name gets, {alone.why}"
    assert named.proofs[0].where == f"{LINEAR}/__init__.py:13"


def test_a_name_without_a_kernel_names_what_runs_where_that_is_known(tmp_path: Path) -> None:
    alone, named = asked(tmp_path, "auto", (8, 0)), asked(tmp_path, "other", (8, 0))
    assert (alone.answer, named.answer) == (Answer.PASS, Answer.FAIL)
    assert named.destination == alone.destination
    assert named.destination.endswith(".First")
    assert (named.needs, named.gates) == (alone.needs, alone.gates)


def test_a_library_is_asked_for_the_backend_that_a_class_names(tmp_path: Path) -> None:
    """The class takes every card; the function that it calls does not, for that backend of it."""
    (gate,) = (gate for gate in asked(tmp_path, "first", (12, 0), library=True).gates if gate.answer is Answer.FAIL)
    assert (gate.proof.where, gate.targets) == ("flashinfer/gemm.py:6", ("10.0", "10.3"))
    assert not any(gate.answer is Answer.FAIL for gate in asked(tmp_path, "first", (10, 0), library=True).gates)
    assert not any(gate.answer is Answer.FAIL for gate in asked(tmp_path, "second", (12, 0), library=True).gates)
    assert asked(tmp_path, "first", (12, 0)).answer is Answer.PASS


def test_the_backend_that_is_named_follows_the_source(tmp_path: Path) -> None:
    edit = 'backend="second" => backend="first"'
    gates = asked(tmp_path, "second", (12, 0), library=True, where=f"{LINEAR}/kernels.py", edit=edit).gates
    assert [gate.targets for gate in gates if gate.answer is Answer.FAIL] == [("10.0", "10.3")]


def test_without_the_librarys_source_nothing_is_claimed_of_it(tmp_path: Path) -> None:
    assert asked(tmp_path, "first", (12, 0)).gates == ()


def test_an_open_gate_is_told_by_what_it_hangs_on(tmp_path: Path) -> None:
    (gate,) = asked(tmp_path, "asked", (12, 0)).gates
    assert gate.answer is Answer.NOT_KNOWN
    assert gate.text == (
        "Asked depends on the answer of the compiled torch.ops._C.takes_this_card "
        f"({LINEAR}/kernels.py:24), which only a call on the card tells"
    )


@pytest.mark.parametrize("capability", [(8, 0), (7, 5)])
def test_a_refusing_gate_is_told_by_its_reason(tmp_path: Path, capability: tuple[int, int]) -> None:
    route = asked(tmp_path, "asked", capability)
    assert route.answer is Answer.FAIL
    assert "asked needs 9.0" in route.why
    assert not any("(False" in gate.text for gate in route.gates)


def test_an_option_is_advised_where_the_version_has_it(tmp_path: Path) -> None:
    """Versions before it chose by a variable, and take no option of that name."""
    assert asked(tmp_path, "asked", (8, 0)).hint == "--linear-backend auto takes the first kernel that works here"
    assert asked(tmp_path, "other", (8, 0)).hint == "--linear-backend with a name that has one"
    place, edit = "vllm/engine/arg_utils.py", "--linear-backend => --moe-backend"
    refused, aside = (asked(tmp_path, name, (8, 0), where=place, edit=edit) for name in ("asked", "other"))
    assert refused.hint == "without VLLM_NVFP4_GEMM_BACKEND the first kernel that works here is taken"
    assert aside.hint == "VLLM_NVFP4_GEMM_BACKEND with a name that has one"
