"""Field cases as small logs of our own: what each must say."""

import json
from pathlib import Path

import msgspec
import pytest

from sublight.audit.ladder import Answer
from sublight.audit.log import (
    EngineLog,
    Known,
    LogFinding,
    Tuned,
    TunedFolder,
    chosen,
    executed,
    log_findings,
    read_log,
)
from sublight.audit.log.findings.tuning import short_table
from sublight.facts.gpu import get_gpu
from sublight.facts.model import read_model
from sublight.facts.workload import Layout

START = "Initializing a V1 LLM engine (v0.26.0) with config: model='m', speculative_config=None, "
PCIE = (
    "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. "
    "To silence this warning, specify disable_custom_all_reduce=True explicitly."
)
WARNING = (
    "Your GPU does not have native support for FP4 computation but FP4 quantization is being used. Weight-only FP4 "
    "compression will be used leveraging the Marlin kernel. This may degrade performance."
)
MARLIN = "Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['FLASHINFER_CUTLASS', 'VLLM_CUTLASS', 'MARLIN']."


def log_of(tmp_path: Path, *lines: str) -> EngineLog:
    path = tmp_path / "server.log"
    path.write_text("\n".join(f"INFO 08-14 09:26:53 [a.py:1] {line}" for line in lines))
    return read_log(path)


def sglang(tmp_path: Path, *lines: str) -> EngineLog:
    path = tmp_path / "server.log"
    path.write_text("\n".join(f"[2026-08-14 09:26:53] {line}" for line in lines))
    return read_log(path)


def found(log: EngineLog, id_: str, known: Known | None = None) -> LogFinding:
    (one,) = [f for f in log_findings(log, known) if f.id == id_]
    return one


class TestMarlinAndTheWrongBlame:
    def test_a_w4a16_checkpoint_gets_marlin_whatever_the_card(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, START, MARLIN, WARNING)
        known = Known(model=read_model("qwen3.6-35b-a3b-nvfp4"), gpu=get_gpu("rtx-pro-6000-server"))
        finding = found(log, "weight-only-experts", known)
        assert finding.level == "info"
        assert "experts are NVFP4 (W4A16): weights of 4 or 8 bits, activations of 16" in finding.text
        assert "MARLIN is what such a checkpoint gets" in finding.text
        assert "(sm_120) does have it, the choice was not about the chip" in finding.text
        assert "reads the same bytes either way: no loss expected there; prefill does lose" in finding.text
        assert "Linear layers (FP8, NVFP4 (W4A16)) are a choice of their own" in finding.text
        assert "an export of the same model with FP4 activations" in finding.advice
        assert [p.where for p in finding.proofs] == ["server.log:2", "server.log:3"]

    def test_a_w4a4_checkpoint_on_a_card_with_fp4_was_passed_over(self, tmp_path: Path) -> None:
        refused = (
            "NvFp4 MoE backend 'FLASHINFER_CUTLASS' does not support the deployment configuration "
            "since kernel does not support unpadded shape."
        )
        log = log_of(tmp_path, START, refused, MARLIN, WARNING)
        known = Known(model=read_model("glm-5-nvfp4"), gpu=get_gpu("rtx-pro-6000-server"))
        finding = found(log, "weight-only-experts", known)
        assert finding.level == "warn"
        assert "yet MARLIN ran, which does not use them" in finding.text
        assert "It was chosen after FLASHINFER_CUTLASS, VLLM_CUTLASS" in finding.text
        assert "FLASHINFER_CUTLASS: kernel does not support unpadded shape" in finding.text
        assert "VLLM_LOGGING_LEVEL=DEBUG" in finding.advice

    def test_sglang_picks_it_for_such_a_checkpoint(self, tmp_path: Path) -> None:
        line = "Use marlin as MoE runner backend for Qwen3MoeForCausalLM with W4A16_NVFP4 MoE layers"
        log = sglang(tmp_path, "server_args=ServerArgs(model_path='m')", line)
        known = Known(model=read_model("qwen3.6-35b-a3b-nvfp4"), gpu=get_gpu("rtx-pro-6000-server"))
        finding = found(log, "weight-only-experts", known)
        assert (finding.level, "marlin is what such a checkpoint gets" in finding.text) == ("info", True)

    def test_marlin_that_was_asked_for_is_no_fallback(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, "non-default args: {'moe_backend': 'marlin'}", START, MARLIN)
        finding = found(log, "weight-only-experts", Known(model=read_model("glm-5-nvfp4"), gpu=get_gpu("b200")))
        assert finding.level == "info"
        assert finding.text.startswith("MARLIN was asked for, and does not use the card's FP4 units.")

    def test_a_warning_without_experts(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, START, WARNING)
        finding = found(log, "weight-only-warning", Known(gpu=get_gpu("rtx-pro-6000-server")))
        assert "does have them: the warning is about the choice" in finding.text
        assert found(log, "weight-only-warning", Known(gpu=get_gpu("h200"))).level == "info"


class TestAVariableNobodyReads:
    LINES = (
        "non-default args: {'model': 'm', 'max_num_seqs': 8}",
        "Unknown vLLM environment variable detected: VLLM_FLASHINFER_MOE_BACKEND",
        START + "kernel_config=KernelConfig(moe_backend='auto')",
        "Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential backends: ['FLASHINFER_CUTLASS', 'MARLIN'].",
        "Model loading took 20.1 GiB memory and 9.1 seconds",
        "Available KV cache memory: 57.36 GiB",
    )

    def test_the_effective_choice_comes_from_the_log(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, *self.LINES)
        known = Known(environment={"VLLM_FLASHINFER_MOE_BACKEND": "latency"})
        finding = found(log, "variable-not-read", known)
        assert finding.level == "error"
        assert finding.text == (
            "VLLM_FLASHINFER_MOE_BACKEND=latency is not read by vLLM 0.26.0, which has --moe-backend instead. "
            "Effective: moe_backend auto -> FLASHINFER_CUTLASS for NvFp4 experts."
        )
        assert finding.advice == "unset it and set --moe-backend"
        assert [p.where for p in finding.proofs] == ["server.log:2", "server.log:3", "server.log:4"]

    def test_no_value_is_made_up(self, tmp_path: Path) -> None:
        text = found(log_of(tmp_path, *self.LINES), "variable-not-read").text
        assert text.startswith("VLLM_FLASHINFER_MOE_BACKEND is not read")

    def test_a_variable_the_log_is_silent_about(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, *self.LINES[2:])
        known = Known(
            environment={"VLLM_MARLIN_USE_ATOMIC_AD": "1", "VLLM_LOGGING_LEVEL": "DEBUG", "PATH": "/bin"},
            read_variables=frozenset({"VLLM_MARLIN_USE_ATOMIC_ADD", "VLLM_LOGGING_LEVEL"}),
        )
        finding = found(log, "variables-unknown", known)
        assert "1 variable is set that vLLM 0.26.0 does not know: VLLM_MARLIN_USE_ATOMIC_AD=1" in finding.text
        assert finding.advice == "perhaps meant: VLLM_MARLIN_USE_ATOMIC_AD -> VLLM_MARLIN_USE_ATOMIC_ADD"

    def test_a_secret_stays_one(self, tmp_path: Path) -> None:
        known = Known(environment={"VLLM_SOME_API_KEY": "abc"}, read_variables=frozenset({"VLLM_LOGGING_LEVEL"}))
        text = found(log_of(tmp_path, *self.LINES[2:]), "variables-unknown", known).text
        assert "VLLM_SOME_API_KEY=<hidden>" in text

    def test_code_that_reads_it_after_all(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, *self.LINES)
        known = Known(read_variables=frozenset({"VLLM_FLASHINFER_MOE_BACKEND"}))
        assert found(log, "variable-unlisted", known).level == "info"


class TestTunedConfigurations:
    WANTED = "E=128,N=352,device_name=NVIDIA_GB10,dtype=fp8_w8a8.json"
    MISSING = (
        f"Using default MoE config. Performance might be sub-optimal! Config file not found at /opt/v/configs/{WANTED}"
    )

    def test_the_wanted_name_and_the_nearest_there_is(self, tmp_path: Path) -> None:
        names = (
            "E=64,N=1280,device_name=NVIDIA_H100,dtype=fp8_w8a8.json",
            "E=128,N=2816,device_name=NVIDIA_GB10,dtype=fp8_w8a8.json",
            "E=128,N=704,device_name=NVIDIA_GB10,dtype=fp8_w8a8.json",
        )
        known = Known(tuned=Tuned(folders={"/opt/v/configs": TunedFolder("v/configs", names)}))
        finding = found(log_of(tmp_path, START, self.MISSING), "no-tuned-config", known)
        assert f"wanted {self.WANTED}: not found" in finding.text
        assert "Nearest of the 3 in v/configs: E=128,N=704,device_name=NVIDIA_GB10,dtype=fp8_w8a8.json" in finding.text
        assert "N=704 (another width of a rank). The width is of another tensor-parallel size." in finding.text
        assert "has to be measured" in finding.text

    def test_nobody_looked(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, START, self.MISSING)
        text = found(log, "no-tuned-config").text
        assert "Which files there are is not known: no installation was looked at." in text
        known = Known(tuned=Tuned(unread="the log is of vllm 0.26.0, and audited is 0.33.0"))
        assert (
            "is not known: the log is of vllm 0.26.0, and audited is 0.33.0."
            in found(log, "no-tuned-config", known).text
        )

    def test_marlin_takes_no_such_file(self, tmp_path: Path) -> None:
        finding = found(log_of(tmp_path, START, MARLIN, self.MISSING), "no-tuned-config")
        assert finding.level == "info"
        assert "the warning does not concern this run" in finding.text

    def test_a_table_that_ends_at_small_batches(self, tmp_path: Path) -> None:
        name = "E=128,N=768,device_name=NVIDIA_GB10,dtype=fp8_w8a8,block_shape=[128,128].json"
        rows = json.dumps({"1": {}, "2": {}, "4": {}, "8": {}, "triton_version": "3.5.0"}).encode()
        log = log_of(tmp_path, START, f"Using configuration from /opt/v/configs/{name} for MoE layer.")
        finding = found(log, "short-tuned-config", Known(tuned=Tuned(tables={name: rows})))
        assert "rows for 1, 2, 4, 8 only" in finding.text
        assert "every M >= 16 uses the row of 8" in finding.text
        assert "add rows up to 4096" in finding.advice

    def test_a_file_that_is_no_table(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, START, "Using configuration from /opt/v/configs/E=1,N=2.json for MoE layer.")
        finding = found(log, "damaged-tuned-config", Known(tuned=Tuned(tables={"E=1,N=2.json": b"[1]"})))
        assert finding.text.startswith("E=1,N=2.json is there and is no table of batch sizes: Expected `object`")

    def test_a_table_that_reaches_prefill_is_fine(self) -> None:
        assert short_table((1, 2, 4, 8, 512, 4096)) == ""
        assert short_table(()) == ""


class TestAllReduce:
    def test_what_published_timings_say_it_costs(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, START + "tensor_parallel_size=8, pipeline_parallel_size=1", PCIE)
        known = Known(model=read_model("glm-5-nvfp4"), gpu=get_gpu("rtx-pro-6000-server"))
        finding = found(log, "custom-all-reduce-off", known)
        assert "157 all-reduces a step of 12,288 B at batch 1" in finding.text
        assert "NCCL 26.9 us each, 4.22 ms a step" in finding.text
        assert "best published over pcie5-switch 9.20 us, 1.44 ms a step: 2.77 ms between them" in finding.text
        assert "Do not force custom kernels blindly" in finding.text
        assert "NCCL became the faster one above 64 to 384 KiB a message: keep it for prefill" in finding.text
        assert "rtx6kpro" in finding.source

    def test_a_card_or_a_layout_nobody_timed(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, START + "tensor_parallel_size=4", PCIE)
        known = Known(model=read_model("glm-5-nvfp4"), gpu=get_gpu("rtx-pro-6000-server"), interconnect="pcie5")
        assert "what one takes over pcie5 is not known" in found(log, "custom-all-reduce-off", known).text
        assert "not known without the model and the card" in found(log, "custom-all-reduce-off").text

    def test_a_log_that_does_not_say_how_many_ranks(self, tmp_path: Path) -> None:
        """What was asked for counts then, and is said to; the one card of nothing asked for does not."""
        log = log_of(tmp_path, START, PCIE)
        known = Known(model=read_model("glm-5-nvfp4"), gpu=get_gpu("rtx-pro-6000-server"), layout=Layout(tp=8))
        text = found(log, "custom-all-reduce-off", known).text
        assert (
            "157 all-reduces a step of 12,288 B at batch 1, as TP8 was asked for and the log does not say: NCCL "
            "26.9 us each, 4.22 ms a step"
        ) in text
        alone = msgspec.structs.replace(known, layout=Layout())
        assert "not known without the number of ranks" in found(log, "custom-all-reduce-off", alone).text
        said = log_of(tmp_path, START + "tensor_parallel_size=8", PCIE)
        other = msgspec.structs.replace(known, layout=Layout(tp=4))
        assert "at batch 1: NCCL 26.9 us" in found(said, "custom-all-reduce-off", other).text

    def test_switched_off_by_the_user(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, START + "tensor_parallel_size=8, disable_custom_all_reduce=True")
        assert found(log, "custom-all-reduce-off").level == "info"
        alone = log_of(tmp_path, START + "tensor_parallel_size=1, disable_custom_all_reduce=True")
        assert not [f for f in log_findings(alone) if f.id == "custom-all-reduce-off"]

    def test_sglangs_second_kind_of_it(self, tmp_path: Path) -> None:
        line = PCIE.replace("Custom allreduce", "CustomAllReduceV2")
        log = sglang(tmp_path, "server_args=ServerArgs(model_path='m', tp_size=8)", line)
        assert (
            "custom all-reduce is off (it's not supported on more than two PCIe-only GPUs)"
            in found(log, "custom-all-reduce-off").text
        )


class TestOutOfTheGraph:
    def test_a_cap_far_below_the_limit(self, tmp_path: Path) -> None:
        log = sglang(
            tmp_path,
            "server_args=ServerArgs(model_path='m', tp_size=1)",
            "Capture cuda graph bs [1, 2, 4, 8, 16, 24, 32]",
            "max_total_num_tokens=900000, chunked_prefill_size=8192, max_running_requests=4096, context_len=4096",
            "Decode batch, #running-req: 32, #token: 9, token usage: 0.00, cuda graph: True, gen throughput: 9",
            *["Decode batch, #running-req: 40, #token: 9, token usage: 0.00, cuda graph: False, gen throughput: 9"] * 3,
        )
        finding = found(log, "batches-beyond-graphs")
        assert "max captured decode batch 32, max running 4096: batches 33..4096 run eager" in finding.text
        assert finding.advice.endswith("set --max-running-requests 32")
        assert [p.where for p in finding.proofs] == ["server.log:2", "server.log:3"]
        ran = found(log, "decode-ran-eager")
        assert ran.level == "warn"
        assert (
            "3 of 4 decode lines (75 %) say cuda graph: False, at batch 40. Batches up to 32 ran as a graph" in ran.text
        )

    GRID = (1, 2, 4, *range(8, 257, 8), *range(272, 705, 16))

    def vllm(self, tmp_path: Path, most: int, mode: str, speculative: str = "None") -> EngineLog:
        return log_of(
            tmp_path,
            f"non-default args: {{'model': 'm', 'max_num_seqs': {most}}}",
            START.replace("speculative_config=None", f"speculative_config={speculative}")
            + f"compilation_config={{'cudagraph_mode': <CUDAGraphMode.{mode}>, "
            f"'cudagraph_capture_sizes': {list(self.GRID)}}}",
        )

    def test_a_limit_beside_the_grid(self, tmp_path: Path) -> None:
        finding = found(self.vllm(tmp_path, 700, "FULL_DECODE_ONLY: (2, 0)"), "limit-beside-the-grid")
        assert "the limit of 700 requests is not in the capture list (..., 672, 688, 704)" in finding.text
        assert "batches 689..700 run eager" in finding.text
        assert finding.advice == "add 700 to cudagraph_capture_sizes, or set --max-num-seqs 688"

    def test_pieces_may_cover_it(self, tmp_path: Path) -> None:
        finding = found(self.vllm(tmp_path, 700, "FULL_AND_PIECEWISE: (2, 1)"), "limit-beside-the-grid")
        assert "batches 689..700 run without a graph of the whole step, at most in pieces" in finding.text

    def test_a_limit_on_the_grid_is_fine(self, tmp_path: Path) -> None:
        log = self.vllm(tmp_path, 688, "FULL_DECODE_ONLY: (2, 0)")
        assert not [f for f in log_findings(log) if f.subject == "CUDA graphs"]

    def test_drafts_multiply(self, tmp_path: Path) -> None:
        speculative = "SpeculativeConfig(method='mtp', model='m', num_spec_tokens=3)"
        log = self.vllm(tmp_path, 256, "FULL_DECODE_ONLY: (2, 0)", speculative)
        finding = found(log, "batches-beyond-graphs")
        assert "max captured decode batch 176, max running 256: batches 177..256 run eager" in finding.text
        assert "a request takes 4 tokens a step, so that 256 requests are 1024 tokens" in finding.text

    def test_an_eager_flag_left_on(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, START + "enforce_eager=True")
        assert found(log, "graphs-off").advice == "remove --enforce-eager"

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (START + "compilation_config={'cudagraph_mode': <CUDAGraphMode.NONE: 0>}", "cudagraph_mode is NONE"),
            (
                "server_args={'cuda_graph_config': {'decode': {'backend': 'disabled', 'bs': [1]}}}",
                "cuda_graph_config.decode.backend is disabled",
            ),
            ("server_args={'disable_cuda_graph': True}", "disable_cuda_graph is set"),
        ],
    )
    def test_other_ways_to_switch_them_off(self, tmp_path: Path, line: str, reason: str) -> None:
        finding = found(log_of(tmp_path, line), "graphs-off")
        assert f"decode runs without CUDA graphs: {reason}" in finding.text
        assert [p.where for p in finding.proofs] == ["server.log:1"]


class TestImports:
    def test_a_kernel_wheel_with_two_faults(self, tmp_path: Path) -> None:
        path = tmp_path / "server.log"
        path.write_text(
            "ImportError: \n[sgl_kernel] CRITICAL: Could not load any common_ops library!\n\nAttempted locations:\n"
            "1. Architecture-specific pattern: /s/sgl_kernel/sm100/common_ops.* - found files: ['common_ops.abi3.so']\n"
            "2. Fallback pattern: /s/sgl_kernel/common_ops.* - found files: []\n\nGPU Info:\n"
            "- Compute capability: 121\n"
            "- ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory\n"
        )
        finding = found(read_log(path), "kernel-wheel")
        assert finding.level == "error"
        assert "it has sm100 for a card of compute capability 121" in finding.text
        assert "libnvrtc.so.12 is not there, which is built for CUDA 12" in finding.text
        assert "These are two faults" in finding.text

    def test_kernels_hidden_for_want_of_a_compiler(self, tmp_path: Path) -> None:
        line = "FlashInfer unavailable since nvcc was not found and not using pre-downloaded cubins"
        finding = found(log_of(tmp_path, START, line), "hidden-for-want-of-nvcc")
        assert "prebuilt ones for the card need none" in finding.text
        assert "VLLM_HAS_FLASHINFER_CUBIN=1" in finding.advice


class TestAskedAndNotUsed:
    def test_another_moe_backend_ran(self, tmp_path: Path) -> None:
        log = log_of(
            tmp_path,
            "non-default args: {'moe_backend': 'flashinfer_cutedsl'}",
            START + "kernel_config=KernelConfig(moe_backend='flashinfer_cutedsl')",
            "Using 'VLLM_CUTLASS' NvFp4 MoE backend out of potential backends: ['VLLM_CUTLASS'].",
            "Available KV cache memory: 57.36 GiB",
        )
        finding = found(log, "moe-backend-not-used")
        assert finding.text == "MoE backend flashinfer_cutedsl was asked for, and VLLM_CUTLASS ran."
        step = executed(log, "flashinfer_cutedsl")
        assert (step.answer, step.why) == (
            Answer.FAIL,
            "vLLM 0.26.0 was asked for flashinfer_cutedsl and ran VLLM_CUTLASS",
        )

    def test_sglang_ran_triton_instead(self, tmp_path: Path) -> None:
        log = sglang(
            tmp_path,
            "server_args=ServerArgs(model_path='m', moe_runner_backend='flashinfer_cutlass')",
            "Using MoE kernel config from /s/configs/E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8.json.",
        )
        assert "flashinfer_cutlass was set, and triton ran" in found(log, "moe-backend-not-used").text

    def test_the_same_name_in_other_letters_is_the_same(self, tmp_path: Path) -> None:
        log = log_of(
            tmp_path,
            "non-default args: {'moe_backend': 'b12x', 'quantization': 'modelopt', 'attention_backend': 'FLASH_ATTN'}",
            START + "quantization=modelopt_fp4, kernel_config=KernelConfig(moe_backend='b12x')",
            "Using 'B12X' NvFp4 MoE backend out of potential backends: ['B12X', 'MARLIN'].",
            "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].",
        )
        assert not log_findings(log)
        assert [(made.area, made.text) for made in chosen(log)] == [
            ("moe", "vLLM 0.26.0 chose B12X for NvFp4, out of B12X, MARLIN (asked for: b12x)"),
            ("attention", "vLLM 0.26.0 chose FLASH_ATTN, out of FLASH_ATTN"),
        ]

    def test_a_setting_the_engine_replaced(self, tmp_path: Path) -> None:
        log = sglang(
            tmp_path,
            "server_args=ServerArgs(model_path='m')",
            "mxfp8 quantization supports only cutlass, flashinfer_trtllm backends. Overriding 'triton'.",
        )
        text = found(log, "setting-replaced").text
        assert text == ("moe_runner_backend: triton was replaced (supports only cutlass, flashinfer_trtllm backends).")

    def test_layers_that_fell_back_are_counted_once(self, tmp_path: Path) -> None:
        line = (
            "Layer 'model.layers.{}.mlp.experts' is not supported by AWQMoeMarlin. Falling back to Moe WNA16 kernels."
        )
        log = log_of(tmp_path, START, *(line.format(n) for n in range(4)))
        assert found(log, "setting-replaced").text == "some layers: AWQMoeMarlin was replaced by Moe WNA16 kernels."
        assert log.facts[-1].times == 4

    def test_experts_emulated_in_software(self, tmp_path: Path) -> None:
        line = "Using 'EMULATION' NvFp4 MoE backend out of potential backends: ['FLASHINFER_TRTLLM', 'EMULATION']."
        finding = found(log_of(tmp_path, START, line), "emulated-experts")
        assert finding.level == "error"
        assert "It was chosen after FLASHINFER_TRTLLM" in finding.text


def test_ranks_that_disagree(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    lines = [
        f"(Worker_TP{r} pid={r}) INFO 08-14 09:26:53 [n.py:1] vLLM is using nccl==2.28.{9 - (r == 3)}" for r in range(4)
    ]
    path.write_text("\n".join([f"INFO 08-14 09:26:53 [c.py:1] {START}", *lines]))
    finding = found(read_log(path), "ranks-disagree")
    assert finding.text == "ranks made different choices: TP0, TP1, TP2: 2.28.9; TP3: 2.28.8."
    assert [p.where for p in finding.proofs] == ["server.log:2", "server.log:5"]


def test_a_rank_that_says_less_is_no_disagreement(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    both = ("FLASH_ATTN", "TRITON_ATTN")
    lines = [
        f"(Worker_TP{r} pid={r}) INFO 08-14 09:26:53 [n.py:1] "
        f"Using {b} attention backend out of potential backends: ['{b}']."
        for r, names in ((0, both), (1, both[:1]))
        for b in names
    ]
    path.write_text("\n".join([f"INFO 08-14 09:26:53 [c.py:1] {START}", *lines]))
    assert read_log(path).disagreements == ()


def test_workers_without_a_rank_are_told_apart_by_their_process(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    lines = [f"(VllmWorkerProcess pid={pid}) INFO 08-14 09:26:53 [n.py:1] vLLM is using nccl==2.28.9" for pid in (7, 9)]
    path.write_text("\n".join([f"INFO 08-14 09:26:53 [c.py:1] {START}", *lines]))
    assert read_log(path).facts[-1].ranks == ("process 7", "process 9")
