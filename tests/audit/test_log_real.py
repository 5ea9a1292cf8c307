"""Logs of real starts, and one of eight ranks in the form of real ones: what each says, and on which line."""

from pathlib import Path

import pytest

from sublight.audit.ladder import Answer
from sublight.audit.log import EngineLog, Known, LogFinding, executed, log_findings, proven_experts, read_log
from sublight.audit.log.choices import graphs
from sublight.audit.log.record import FactKind
from sublight.facts.gpu import get_gpu
from sublight.facts.model import read_model
from sublight.records import decode, encode

LOGS = Path(__file__).parents[1] / "data" / "logs"
CANDIDATES = (
    "FLASHINFER_TRTLLM FLASHINFER_CUTEDSL FLASHINFER_CUTEDSL_BATCHED FLASHINFER_CUTLASS VLLM_CUTLASS MARLIN EMULATION"
)
UNKNOWN = (
    "PCIE_ALLREDUCE_BACKEND RTX6K_FUSED_ALLREDUCE_ADD CACHE_DIR SPEC_ACCEPT_THRESHOLD_SINGLE "
    "B12X_MLA_SPEC_SERIAL_DECODE CPP_AR_IGNORE_CUTOFF_MAX_ROWS MTP_RETURN_NORMALIZED_HIDDEN "
    "RTX6K_FUSED_ALLREDUCE_ADD_END_BARRIER SPEC_ACCEPT_THRESHOLD_ACC CPP_AR_1STAGE_NCCL_CUTOFF "
    "B12X_MLA_DECODE_INLINE_LSE"
)


def log_of(name: str) -> EngineLog:
    return read_log(LOGS / name)


def found(log: EngineLog, id_: str, known: Known | None = None) -> LogFinding:
    (one,) = [f for f in log_findings(log, known) if f.id == id_]
    return one


def said(log: EngineLog, kind: FactKind) -> list[tuple[int, dict[str, str], int]]:
    return [(fact.first.line, fact.fields, fact.times) for fact in log.of(kind)]


def test_vllm_says_which_experts_kernels_it_chose_and_out_of_what() -> None:
    log = log_of("vllm-0.20.2-glm5-graph.log")
    assert (log.engine, log.engine_version, log.world, log.starts) == ("vllm", "0.20.2", 1, (1,))
    (moe,) = log.of(FactKind.MOE_BACKEND)
    assert (moe.get("backend"), moe.get("format"), moe.first.line) == ("MARLIN", "NvFp4", 12)
    assert [name.strip("'") for name in moe.get("candidates").split(", ")] == CANDIDATES.split()
    assert said(log, FactKind.LINEAR_KERNEL) == [(11, {"kernel": "MarlinNvFp4LinearKernel", "format": "NVFP4"}, 1)]
    assert said(log, FactKind.WEIGHT_ONLY) == [(13, {"format": "FP4", "kernel": "Marlin"}, 2)]
    (attention,) = log.of(FactKind.ATTENTION)
    assert attention.get("backend") == "FLASHMLA_SPARSE"
    assert {f.get("what"): f.get("value") for f in log.of(FactKind.MEMORY)} == {
        "weights": "55.1 GiB",
        "KV cache": "57.36 GiB",
        "KV cache tokens": "614,912",
        "CUDA graphs": "0.20 GiB",
    }


def test_vllm_arguments_and_configuration() -> None:
    log = log_of("vllm-0.20.2-glm5-graph.log")
    assert log.asked.get("max_num_seqs") == "16"
    assert log.asked.get("model") == "glm5-tp8rank"
    assert log.config.get("quantization") == "modelopt_fp4"
    assert log.setting("tensor_parallel_size") == "1"
    plan = graphs(log)
    assert plan.sizes == (1, 2, 4, 8, 16)
    assert (plan.largest, plan.per_request, plan.most_running, plan.piecewise) == (16, 1, 16, True)


def test_the_proof_of_a_rung_is_the_line() -> None:
    log = log_of("vllm-0.20.2-glm5-graph.log")
    (proven,) = proven_experts(log)
    assert (proven.name, proven.logged, proven.format, proven.how) == ("marlin", "MARLIN", "NvFp4", "chosen")
    assert proven.proof.where == "vllm-0.20.2-glm5-graph.log:12"
    assert "Using 'MARLIN' NvFp4 MoE backend" in proven.proof.text
    assert executed(log, "marlin").answer is Answer.PASS
    auto = executed(log, "auto")  # the log says moe_backend='auto' as well as what ran
    assert (auto.answer, auto.why) == (Answer.PASS, "vLLM 0.20.2 was asked for auto and ran MARLIN for the experts")
    assert [proof.where.rpartition(":")[2] for proof in auto.proofs] == ["6", "12"]
    other = executed(log, "flashinfer_cutlass")
    assert (other.answer, other.why) == (Answer.NOT_KNOWN, "this log is of a run with MARLIN")


def test_a_choice_without_a_forward_pass_proves_nothing(tmp_path: Path) -> None:
    whole = (LOGS / "vllm-0.20.2-glm5-graph.log").read_text().split("\n")
    (tmp_path / "cut.log").write_text("\n".join(whole[:16]))
    step = executed(read_log(tmp_path / "cut.log"), "marlin")
    assert (step.answer, step.why) == (
        Answer.NOT_KNOWN,
        "the engine chose MARLIN (line 12), but the log ends before a forward pass",
    )


def test_weight_only_on_a_card_without_fp4_is_right() -> None:
    log = log_of("vllm-0.20.2-glm5-graph.log")
    right = found(log, "weight-only-experts", Known(model=read_model("glm-5-nvfp4"), gpu=get_gpu("h200")))
    assert right.level == "info"
    assert "NVIDIA H200" in right.text
    assert "(sm_90) has no FP4 units" in right.text
    assert "the warning is right" in right.text
    assert "MarlinNvFp4LinearKernel for NVFP4" in right.text
    bare = found(log, "weight-only-experts")
    assert bare.level == "warn"
    assert "not known: name the checkpoint's format and the card" in bare.text


def test_eager_is_seen_and_told_how_to_undo() -> None:
    log = log_of("vllm-0.20.2-glm5-eager.log")
    off = found(log, "graphs-off")
    assert "enforce_eager is set" in off.text
    assert off.advice == "remove --enforce-eager"
    assert log.of(FactKind.GRAPH_OFF)[0].times == 2


def test_what_the_engine_says_in_passing() -> None:
    log = log_of("vllm-0.20.2-glm5-graph.log")
    assert "num_heads is padded from 8 to 64 for BF16 sparse prefill, 8 times the work" in found(log, "padded").text
    assert "VLLM_MARLIN_USE_ATOMIC_ADD=1" in found(log, "engine-suggests").text


def test_a_graph_run_of_vllm_has_nothing_to_complain_of_its_graphs() -> None:
    ids = {f.id for f in log_findings(log_of("vllm-0.20.2-qwen3-graph.log"))}
    assert ids == {"weight-only-experts"}


def test_sglang_quantization_that_was_asked_for_and_not_used() -> None:
    log = log_of("sglang-0.5.16-qwen3-nvfp4-graph.log")
    assert (log.engine, log.engine_version, log.world) == ("sglang", "", 1)
    assert len(log.asked.arguments) == 445
    assert log.asked.get("quantization") == "humming"
    assert log.asked.get("attention_backend") == "fa3"
    finding = found(log, "quantization-not-used")
    assert finding.level == "error"
    assert "--quantization humming was asked for; the weights were loaded as modelopt_fp4 (NVFP4)" in finding.text
    assert [p.where.rsplit(":", 1)[1] for p in finding.proofs] == ["1", "8"]


def test_sglang_does_not_name_its_experts_kernels_and_nothing_is_guessed() -> None:
    log = log_of("sglang-0.5.16-qwen3-nvfp4-graph.log")
    assert proven_experts(log) == ()
    step = executed(log, "marlin")
    assert step.answer is Answer.NOT_KNOWN
    assert "SGLang prints no line that names the kernels of the experts (moe_runner_backend=auto)" in step.why


def test_sglang_graphs_and_decode_lines() -> None:
    log = log_of("sglang-0.5.16-qwen3-nvfp4-graph.log")
    plan = graphs(log)
    assert (plan.sizes, plan.largest_batch, plan.most_running) == ((1, 2, 4, 8, 16), 16, 16)
    assert [(f.get("batch"), f.get("graph"), f.times) for f in log.of(FactKind.DECODE)] == [
        ("1", "True", 14),
        ("16", "True", 12),
    ]
    assert {f.get("what"): f.get("value") for f in log.of(FactKind.MEMORY)}["weights"] == "-92.38 GB"


def test_sglang_eager_run() -> None:
    log = log_of("sglang-0.5.16-qwen3-nvfp4-eager.log")
    assert found(log, "graphs-off").advice == "remove --disable-cuda-graph"
    assert "5 of 5 decode lines (100 %) say cuda graph: False, at batch 1" in found(log, "decode-ran-eager").text


def test_sglang_fp8_run_proves_triton_by_its_own_look_up() -> None:
    log = log_of("sglang-0.5.16-qwen3-fp8-graph.log")
    (proven,) = proven_experts(log)
    assert (proven.name, proven.how) == ("triton", "its own line")
    assert executed(log, "triton").answer is Answer.PASS
    wanted = [f.get("file") for f in log.of(FactKind.NO_CONFIG)]
    block = "device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]"
    assert wanted == [f"N=5120,K=2048,{block}.json", f"N=2048,K=4096,{block}.json", f"E=128,N=768,{block}_down.json"]
    other = found(log, "other-tuned-config")
    assert f"no E=128,N=768,{block}.json for this version of Triton; the one of triton version 3.2.0" in other.text


def test_a_message_behind_a_progress_bar_is_read() -> None:
    log = log_of("sglang-0.5.16-qwen3-fp8-graph.log")
    first = log.of(FactKind.NO_CONFIG)[0]
    assert first.first.text.startswith("[2026-11-30 04:02:32] Using default W8A8 Block FP8 kernel config")


def test_eight_ranks_are_merged_and_counted() -> None:
    log = log_of("made-vllm-tp8-pcie.log")
    everyone = tuple(f"TP{rank}" for rank in range(8))
    assert log.world == 8
    by_method = {fact.get("method"): fact for fact in log.of(FactKind.ALL_REDUCE)}
    for method in ("symmetric memory", "custom", "FlashInfer fusion"):
        assert (by_method[method].ranks, by_method[method].times) == (everyone, 8)
    assert by_method["custom"].get("cause") == "more than two PCIe-only GPUs"
    assert log.of(FactKind.NCCL)[0].get("version") == "2.28.9"
    assert log.disagreements == ()


def test_all_eleven_unknown_variables_are_one_finding() -> None:
    log = log_of("made-vllm-tp8-pcie.log")
    finding = found(log, "variables-unknown")
    assert len(finding.proofs) == 11
    for name in UNKNOWN.split():
        assert f"VLLM_{name}" in finding.text


def test_secrets_of_a_command_line_are_in_no_record() -> None:
    log = log_of("made-vllm-tp8-pcie.log")
    assert log.asked.get("api_key") == "<hidden>"
    assert b"not-for-anybody" not in encode(log)


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda p: p.stem)
def test_a_saved_log_reads_back_the_same(path: Path) -> None:
    log = read_log(path)
    assert decode(encode(log), {"engine-log": EngineLog}) == log


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda p: p.stem)
def test_every_fact_stands_where_it_says(path: Path) -> None:
    lines = path.read_bytes().decode().split("\n")
    log = read_log(path)
    for fact in log.facts:
        text = fact.first.text.removesuffix("…")[-60:].rstrip()
        assert "<hidden>" in fact.first.text or text in lines[fact.first.line - 1], fact
