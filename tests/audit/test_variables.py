"""Variables that nobody reads: what to try is what took their place, or the name that was meant, and nothing else."""

import pytest

from sublight.audit.variables import meant, of_variables

KNOWN = frozenset({"SGLANG_DUMPER_", "SGLANG_MOE_CONFIG_DIR", "SGLANG_USE_AITER", "SGLANG_LOG_MS", "SGLANG_TP_RANK"})
NOTHING = "unset it, or look for an option in its place: no variable that is read is spelt almost like it"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("SGLANG_MOE_CONFG_DIR", "SGLANG_MOE_CONFIG_DIR"),
        ("SGLANG_MOE_CONIFG_DIR", "SGLANG_MOE_CONFIG_DIR"),
        ("SGLANG_USE_AITR", "SGLANG_USE_AITER"),
        ("SGLANG_USEAITER", "SGLANG_USE_AITER"),
        ("SGLANG_DP_RANK", NOTHING),
        ("SGLANG_MOE_KEY", NOTHING),
        ("SGLANG_DUMPERS", NOTHING),
        ("SGLANG_SKIP_X", NOTHING),
    ],
)
def test_a_variable_nobody_reads_is_likened_only_to_what_it_misspells(name: str, hint: str) -> None:
    (finding,) = of_variables("sglang", ("SGLANG_",), KNOWN, {name: "1"})
    assert (finding.subject, finding.hint) == (name, hint)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("VLLM_FLASHINFER_MOE_BACKEND", "VLLM_FLASHINFER_ALLREDUCE_BACKEND"),
        ("VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_USE_FLASHINFER_MOE_INT4"),
        ("VLLM_USE_FLASHINFER_MOE_FP4", "VLLM_USE_FLASHINFER_MOE_FP8"),
        ("VLLM_B12X_MLA_DECODE_INLINE_LSE", "VLLM_MAX_AUDIO_DECODE_DURATION_S"),
        ("VLLM_ENCODE_STEPS", "VLLM_DECODE_STEPS"),
        ("VLLM_MOE_INT4", "VLLM_MOE_INT8"),
    ],
)
def test_another_purpose_is_no_misspelling(name: str, other: str) -> None:
    assert meant(name, {other}) == []
    assert meant(other, {name}) == []


def test_what_took_its_place_is_named() -> None:
    known = frozenset({"VLLM_FLASHINFER_ALLREDUCE_BACKEND", "VLLM_USE_FLASHINFER_MOE_INT4"})
    set_ = {
        "VLLM_FLASHINFER_MOE_BACKEND": "latency",
        "VLLM_USE_FLASHINFER_MOE_FP4": "1",
        "VLLM_NVFP4_GEMM_BACKEND": "x",
    }
    hints = {found.subject: found.hint for found in of_variables("vllm", ("VLLM_",), known, set_)}
    assert hints == {
        "VLLM_FLASHINFER_MOE_BACKEND": "unset it and set --moe-backend",
        "VLLM_USE_FLASHINFER_MOE_FP4": "unset it and set --moe-backend",
        "VLLM_NVFP4_GEMM_BACKEND": "unset it and set --linear-backend",
    }


@pytest.mark.parametrize("name", ["SGLANG_DUMPER_STEPS", "SGL_USE_AITER", "FLASHINFER_CUDA_ARCH_LIST", "DG_JIT_DEBUG"])
def test_what_is_read_under_another_spelling_or_by_a_library_is_not_called_unread(name: str) -> None:
    prefixes = ("SGLANG_", "SGL_", "FLASHINFER_", "DG_")
    assert list(of_variables("sglang", prefixes, KNOWN, {name: "1"})) == []
