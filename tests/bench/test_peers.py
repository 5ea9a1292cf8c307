"""Adapters of peers: whose code runs is known before anything is imported, and is what a record says."""

import sys
import types
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sublight.bench.peers import PEERS
from sublight.bench.peers import sglang as sglang_peer
from sublight.bench.peers.base import Candidate
from sublight.bench.peers.humming import HUMMING
from sublight.bench.peers.own import candidate
from sublight.bench.peers.small import named, owner_of_small, small_kernels
from sublight.kernels.catalogue import Limits, kernel_named
from sublight.kernels.problem import MoeProblem

PROBLEM = MoeProblem(tokens=1, hidden_size=128, intermediate_size=64, num_experts=4, top_k=2)
CUDA = torch.device("cuda", 0)


def install(folder: Path, package: str, version: str, **modules: str) -> None:
    """A package of that name and version, with modules given by path and text."""
    for path, text in {"__init__": "", **modules}.items():
        place = folder / package / f"{path.replace('.', '/')}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_small_kernels_are_the_first_engines_that_is_there(installed: Path) -> None:
    assert owner_of_small() == ""
    assert HUMMING.refuses(PROBLEM, CUDA) == "humming-kernels is not installed here"
    install(installed, "humming", "0.1.20")
    assert HUMMING.refuses(PROBLEM, CUDA).startswith("vLLM or SGLang, whose small kernels stand around")
    with pytest.raises(ImportError, match="neither vLLM nor SGLang"):
        small_kernels()
    install(installed, "sglang", "0.5.23")
    assert owner_of_small() == "sglang"
    assert HUMMING.refuses(PROBLEM, CUDA) == ""
    assert HUMMING.words.endswith("with the small kernels of SGLang 0.5.23")
    install(installed, "vllm", "0.20.2")
    assert owner_of_small() == "vllm"
    assert named("vllm") == "vLLM 0.20.2"
    assert "vllm" not in sys.modules


@pytest.mark.parametrize(
    ("target", "said"),
    [("sm_90", "run on NVIDIA H200"), ("sm_120", "compiled, not run")],
)
def test_words_of_our_kernels_say_whether_anybody_ran_them(
    monkeypatch: pytest.MonkeyPatch, target: str, said: str
) -> None:
    monkeypatch.setattr("sublight.kernels.device.limits_of", lambda device: Limits(target=target))
    assert candidate(kernel_named("decode")).words == f"sublight's decode, before this run on {target}: {said}"


def test_a_kernel_of_other_targets_says_where_it_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublight.kernels.device.limits_of", lambda device: Limits(target="sm_121"))
    assert candidate(kernel_named("decode")).refuses(PROBLEM, CUDA) == (
        "it is not built for sm_121: run on NVIDIA H200 (sm_90); compiled, not run (sm_100, sm_120)"
    )
    assert kernel_named("fused-triton-fp4").standing.startswith("compiled, not run (sm_100")


def test_words_of_a_candidate_without_a_version() -> None:
    peer: Candidate = PEERS.load("torch-grouped-mm")
    assert peer.words == peer.title


def test_sglangs_fastest_sum_is_taken_where_its_layer_gives_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two modules of SGLang as they are now, and as they were before its layer could leave out the sum."""

    def topk_sum(parts: Tensor, out: Tensor) -> None: ...

    def now(x: Tensor, no_combine: bool = False) -> None: ...

    def before(x: Tensor) -> None: ...

    layers = "sglang.srt.layers.moe.fused_moe_triton.fused_marlin_moe"
    sums = "sglang.kernels.ops.moe.moe_topk_sum"
    assert sglang_peer._topk_sum() is None
    for name in (layers, sums):
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:count]), types.ModuleType(".".join(parts[:count])))
    sys.modules[sums].moe_topk_sum = topk_sum  # type: ignore[attr-defined]
    for layer, found in ((now, topk_sum), (before, None)):
        sys.modules[layers].fused_marlin_moe = layer  # type: ignore[attr-defined]
        assert sglang_peer._topk_sum() is found
