"""Symbols and imports of released wheels: engines against the FlashInfer they were made for."""

from collections import Counter

import pytest

from sublight.audit.source.failing import Loader, explain
from sublight.audit.source.imports import Import, imports
from sublight.audit.source.symbols import Existence, Resolution, resolve
from sublight.audit.source.tree import Module, Sources
from sublight.audit.source.whereabouts import whereabouts
from tests.audit.wheels import installed, sources

pytestmark = pytest.mark.wheels

ASKED = "flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked"


@pytest.fixture(scope="module")
def old() -> Sources:
    return sources("flashinfer-python==0.6.3")


@pytest.fixture(scope="module")
def new() -> Sources:
    return sources("flashinfer-python==0.7.4")


def asked_of(requirement: str, package: str, other: str) -> list[Import]:
    """Every import of `other` in an installed engine."""
    root = installed(requirement)
    found: list[Import] = []
    for path in sorted((root / package).rglob("*.py")):
        data = path.read_bytes()
        if other.encode() in data:
            shown = str(path.relative_to(root))
            name = shown.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
            found += imports(Module(name, shown, data), [other])
    return found


def resolved(found: list[Import], against: Sources) -> dict[str, Resolution]:
    return {
        name: resolve(against, name) for name in sorted({item.symbol for item in found if item.kind != "attribute"})
    }


@pytest.mark.parametrize("asked", ["flashinfer.jit.cutedsl", "flashinfer.cute"])
@pytest.mark.parametrize("version", ["0.6.3", "0.7.4"])
def test_a_guessed_path_is_answered_with_the_real_one(asked: str, version: str) -> None:
    wheel = sources(f"flashinfer-python=={version}")
    answer = resolve(wheel, asked)
    assert (answer.existence, answer.prefix) == (Existence.MISSING, asked.rpartition(".")[0])
    places = {place.symbol: place.proof.where for place in whereabouts(wheel, answer)}
    assert next(iter(places)) == "flashinfer.cute_dsl"
    assert ASKED in places


def test_the_real_path(old: Sources, new: Sources) -> None:
    answer = resolve(old, ASKED)
    assert (answer.existence, answer.home) == (Existence.FOUND, ASKED)
    assert answer.chain[-1].where == "flashinfer/cute_dsl/blockscaled_gemm.py:2947"
    answer = resolve(new, ASKED)
    assert answer.home == "flashinfer.gemm.kernels.grouped_gemm_masked_wrapper.grouped_gemm_nt_masked"
    assert [proof.where for proof in answer.chain] == [
        "flashinfer/cute_dsl/blockscaled_gemm.py:27",
        "flashinfer/gemm/kernels/grouped_gemm_masked_wrapper.py:45",
    ]


def test_a_guard_that_needs_what_it_guards(old: Sources, new: Sources) -> None:
    """0.6.3 asks whether cutlass is there from a module that imports it first."""

    def no_cutlass(name: str) -> bool:
        return not name.startswith("cutlass")

    cause = explain(old, "flashinfer.cute_dsl", no_cutlass)
    assert cause is not None
    assert [proof.where for proof in cause.chain] == [
        "flashinfer/cute_dsl/__init__.py:21",
        "flashinfer/cute_dsl/utils.py:22",
    ]
    assert cause.swallowed == ()
    assert explain(new, "flashinfer.cute_dsl", no_cutlass) is None
    later = explain(new, ASKED, no_cutlass)
    assert later is not None
    assert later.missing == "cutlass"


def test_nine_names_lost_to_an_import_four_modules_away(new: Sources) -> None:
    loader = Loader(new, lambda name: not name.startswith("triton"))
    state = loader.load("flashinfer")
    assert state.error is None
    assert {"CuteDslMoEWrapper", "cute_dsl_fused_moe_nvfp4", "b12x_fused_moe", "B12xMoEWrapper"} <= set(state.lost)
    assert len([name for name in state.lost if "moe" in name.lower()]) == 9
    cause = state.lost["CuteDslMoEWrapper"]
    assert (cause.missing, cause.certain) == ("triton", True)
    assert cause.chain[0].where == "flashinfer/__init__.py:198"
    assert cause.chain[-1].where == "flashinfer/fused_moe/cute_dsl/blackwell_sm12x/moe_w4a16_route_pack.py:5"
    assert [proof.where for proof in cause.swallowed] == [
        "flashinfer/fused_moe/__init__.py:284",
        "flashinfer/__init__.py:197",
    ]
    assert state.lost["chunk_gated_delta_rule"].missing == "triton"  # stands later under the same guard
    assert explain(new, "flashinfer.CuteDslMoEWrapper", lambda name: True) is None


def test_most_of_a_large_package_is_never_read(new: Sources) -> None:
    fresh = Sources(new.reader, new.roots)
    resolve(fresh, "flashinfer.CuteDslMoEWrapper")
    assert len([module for module in fresh._modules.values() if module]) == 4


def test_sglang_0_5_9_asks_for_one_name_that_is_not_there(old: Sources) -> None:
    found = asked_of("sglang==0.5.9", "sglang", "flashinfer")
    answers = resolved(found, old)
    assert Counter(answer.existence for answer in answers.values()) == {Existence.FOUND: 50, Existence.MISSING: 1}
    gone = next(answer for answer in answers.values() if answer.existence is Existence.MISSING)
    assert gone.asked == "flashinfer.decode._grouped_size_compiled_for_decode_kernels"
    asked = next(item for item in found if item.symbol == gone.asked)
    assert asked.where == "sglang/srt/layers/attention/flashinfer_backend.py:1641"
    assert asked.guard is not None


def test_sglang_0_5_9_and_sgl_kernel() -> None:
    answers = resolved(asked_of("sglang==0.5.9", "sglang", "sgl_kernel"), sources("sgl-kernel==0.3.21"))
    gone = {name for name, answer in answers.items() if answer.existence is Existence.MISSING}
    assert len(answers) == 114
    assert gone == {  # names of builds for other processors
        "sgl_kernel.fused_experts",
        "sgl_kernel.mamba.causal_conv1d_fn_cpu",
        "sgl_kernel.mamba.causal_conv1d_update_cpu",
        "sgl_kernel.mamba.chunk_gated_delta_rule_cpu",
    }
    only_hip = answers["sgl_kernel.gelu_quick"]
    assert only_hip.existence is Existence.CONDITIONAL
    assert only_hip.conditions[0] == "torch.version.hip is not None (sgl_kernel/__init__.py:136)"


def test_sglang_0_5_23() -> None:
    answers = resolved(asked_of("sglang==0.5.23", "sglang", "flashinfer"), sources("flashinfer-python==0.7.2"))
    by = Counter(answer.existence for answer in answers.values())
    assert (len(answers), by[Existence.FOUND], by[Existence.CONDITIONAL]) == (201, 197, 3)
    # Since 0.7 decode has a __getattr__, which lists its names: this one is not among them.
    gone = [name for name, answer in answers.items() if answer.existence is Existence.MISSING]
    assert gone == ["flashinfer.decode._grouped_size_compiled_for_decode_kernels"]


def test_vllm_0_33_asks_for_names_of_a_later_release() -> None:
    """It pins 0.7.2.post1; against 0.7.2 one model family's names are missing, each under a guard or imported late."""
    found = asked_of("vllm==0.33.0", "vllm", "flashinfer")
    answers = resolved(found, sources("flashinfer-python==0.7.2"))
    gone = {name for name, answer in answers.items() if answer.existence is Existence.MISSING}
    elsewhere = {
        item.symbol for item in found if item.symbol in gone and not item.where.startswith("vllm/models/muse_spark/")
    }
    assert elsewhere == {"flashinfer.gemm.Sm120BlockScaledDenseGemmKernel"}  # the old of two names, one suffices
    assert len(answers) - len(gone) == 157
    assert "flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked" in answers  # a pair of strings
