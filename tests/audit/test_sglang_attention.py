"""SGLang's attention backends: chosen, made, and asked for one step of decoding."""

import pytest

from sublight.audit.engines.base import Route
from sublight.audit.engines.sglang import attention
from sublight.audit.ladder import Answer
from sublight.audit.question import ask as ask_for
from sublight.audit.question import card
from sublight.audit.target import Target
from sublight.audit.vendors import foreign
from sublight.facts.workload import Layout
from tests.audit.reading import edited
from tests.audit.wheels import sources

pytestmark = pytest.mark.wheels

HERE = "sglang/srt/layers/attention"


def whole(model: str, gpu: str) -> Target:
    return ask_for(model, card(f"8x{gpu}", None), Layout(tp=8)).target


def ask(name: str, model: str, gpu: str, requirement: str = "sglang==0.5.23") -> Route:
    return attention.route(sources(requirement), name, whole(model, gpu))


@pytest.mark.parametrize(
    ("model", "gpu", "chosen"),
    [
        ("qwen3-30b-a3b", "b200", "TRTLLMHAAttnBackend"),
        ("qwen3-30b-a3b", "h200", "FlashAttentionBackend"),
        ("qwen3-30b-a3b", "rtx-pro-6000-server", "FlashInferAttnBackend"),
        ("gpt-oss-120b", "rtx-pro-6000-server", "TritonAttnBackend"),  # FlashInfer has no attention sinks
        ("glm-5-nvfp4", "b200", "DeepseekSparseAttnBackend"),
    ],
)
def test_auto_is_told_on_every_card(model: str, gpu: str, chosen: str) -> None:
    found = ask("auto", model, gpu)
    assert (found.answer, found.destination.rpartition(".")[2]) == (Answer.PASS, chosen)


@pytest.mark.parametrize(
    ("name", "model", "why", "where"),
    [
        ("dsv4", "qwen3-30b-a3b", "DeepseekV4 shares k and v", "deepseek_v4_backend.py"),
        ("qsa", "qwen3-30b-a3b", "QSA sparse attention requires topk_indices", "qwen_sparse_attn_backend.py"),
        ("fa3", "glm-5-nvfp4", "FlashAttention v3 Backend requires SM>=80 and SM<=90", "attention_registry.py"),
    ],
)
def test_backends_that_a_step_of_decoding_refuses(name: str, model: str, why: str, where: str) -> None:
    found = ask(name, model, "b200")
    assert found.answer is Answer.FAIL
    assert why in found.why
    assert found.proofs[-1].where.startswith(f"{HERE}/{where}:")


@pytest.mark.parametrize(
    ("name", "says", "where"),
    [
        ("aiter", "it needs aiter, which is for AMD's ROCm", "aiter_backend.py"),
        ("wave", "it needs wave_lang, which is for AMD's ROCm", "wave_ops/decode_attention.py"),
        ("intel_xpu", "XPUAttentionBackend is, by the name it has in the engine, for Intel's XPU", "xpu_backend.py"),
        ("intel_amx", "torch.ops.sgl_kernel.decode_attention_cpu is an operator for CPUs", "intel_amx_backend.py"),
    ],
)
def test_backends_of_other_machines_are_refused_with_a_line(name: str, says: str, where: str) -> None:
    found = ask(name, "qwen3-30b-a3b", "b200")
    gates = [gate for gate in (*found.gates, *foreign(sources("sglang==0.5.23"), found)) if gate.answer is Answer.FAIL]
    assert says in [gate.text for gate in gates]
    assert any(gate.proof.where.startswith(f"{HERE}/{where}:") for gate in gates)


def test_a_step_that_is_edited_to_refuse_is_refused_there() -> None:
    change = {f"{HERE}/base_attn_backend.py": (
        "        elif forward_batch.forward_mode.is_decode():\n",
        "        elif forward_batch.forward_mode.is_decode():\n"
        "            raise NotImplementedError('nobody decodes here')\n",
    )}  # fmt: skip
    read = edited(sources("sglang==0.5.23"), change)
    found = attention.route(read, "triton", whole("qwen3-30b-a3b", "h200"))
    assert found.answer is Answer.FAIL
    assert found.why == "refused when a step is decoded: nobody decodes here"
    lines = (sources("sglang==0.5.23").module("sglang.srt.layers.attention.base_attn_backend") or pytest.fail()).lines
    at = next(n for n, line in enumerate(lines, 1) if "forward_mode.is_decode():" in line)
    assert found.proofs[-1].where == f"{HERE}/base_attn_backend.py:{at + 1}"


@pytest.mark.parametrize("requirement", ["sglang==0.5.9", "sglang==0.5.23"])
def test_flash_mla_needs_a_model_with_latents(requirement: str) -> None:
    found = ask("flashmla", "qwen3-30b-a3b", "h200", requirement)
    assert found.answer is Answer.FAIL
    assert found.why.endswith("a model with MHA attention has no attribute kv_lora_rank")
    assert ask("flashmla", "glm-5-nvfp4", "h200", requirement).answer is Answer.PASS


@pytest.mark.parametrize("requirement", ["sglang==0.5.9", "sglang==0.5.23"])
def test_backends_without_the_indexer_attend_to_every_key(requirement: str) -> None:
    found = ask("triton", "glm-5-nvfp4", "rtx-pro-6000-server", requirement)
    assert (found.answer, found.slow) == (Answer.PASS, "attends to every key, where the model selects some")
    assert "base_attn_backend.py:" in found.why
    assert ask("triton", "qwen3-30b-a3b", "rtx-pro-6000-server", requirement).slow == ""
    assert ask("auto", "glm-5-nvfp4", "rtx-pro-6000-server", requirement).slow == ""


@pytest.mark.parametrize(
    ("gpu", "requirement", "kernels"),
    [
        ("rtx-pro-6000-server", "sglang==0.5.23",
         "--dsa-decode-backend flashinfer_sparse_mla and --dsa-prefill-backend flashinfer_sparse_mla"),
        ("h200", "sglang==0.5.23", "--dsa-decode-backend fa3 and --dsa-prefill-backend flashmla_sparse"),
        ("h200", "sglang==0.5.9", "--nsa-decode-backend fa3 and --nsa-prefill-backend flashmla_sparse"),
    ],
)  # fmt: skip
def test_kernels_behind_sparse_attention_are_named(gpu: str, requirement: str, kernels: str) -> None:
    assert ask("auto", "glm-5-nvfp4", gpu, requirement).why.endswith(f" decodes with {kernels}")


def test_a_deprecated_name_is_told_as_the_other_one() -> None:
    assert ask("nsa", "glm-5-nvfp4", "rtx-pro-6000-server").alias_of == "dsa"


@pytest.mark.parametrize("name", ["triton", "flashinfer"])
def test_the_old_versions_backends_decode(name: str) -> None:
    assert ask(name, "qwen3-30b-a3b", "h200", "sglang==0.5.9").answer is Answer.PASS


def test_a_backend_for_another_family_of_models_is_not_said_to_work() -> None:
    found = ask("qsa", "glm-5-nvfp4", "rtx-pro-6000-server")
    assert found.answer is Answer.NOT_KNOWN
    assert found.why.endswith("is, by its name, for qwen models, of which this is none")
    assert ask("dsa", "glm-5-nvfp4", "rtx-pro-6000-server").answer is Answer.PASS  # whose class is Deepseek's
