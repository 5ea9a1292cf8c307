"""What a log and a trace prove of attention, FP4 products and all-reduces, and how an audit tells of choices."""

import re
from pathlib import Path

import msgspec
import pytest

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.ladder import Answer, Ladder, Rung, Step, passed, unknown
from sublight.audit.log import chosen, executed_in, read_log
from sublight.audit.log.record import EngineLog
from sublight.audit.proven import Seen, last_rungs
from sublight.audit.record import Audit, EngineAudit, MachineSummary, Timings
from sublight.audit.seen import choices_of, seen_in
from sublight.facts.workload import Layout
from sublight.gap.example import bundled_example
from sublight.records import decode, encode
from sublight.report.text import render_text
from sublight.report.views.audit import audit_document
from tests.audit.scenes import installation, scene, target

LOGS = Path(__file__).parents[1] / "data" / "logs"
GLM = LOGS / "vllm-0.20.2-glm5-graph.log"
SPARSE = "vllm.v1.attention.backends.mla.flashmla_sparse.FlashMLASparseBackend"
LINEAR = "vllm.model_executor.kernels.linear.nvfp4.marlin.MarlinNvFp4LinearKernel"
REGISTERED = "INFO 05-15 03:31:20 [custom_all_reduce.py:215] Registering 314 cuda graph addresses"
OFF = (
    "WARNING 05-15 03:31:20 [custom_all_reduce.py:142] Custom allreduce is disabled due to an unsupported world size: "
    "{}. Supported world sizes: [2, 4, 6, 8]. To silence this warning, specify disable_custom_all_reduce=True "
    "explicitly."
)


def step(tmp_path: Path, area: str, name: str, seen: Seen, destination: str = "", tp: int = 1) -> Step:
    asked = Declaration(area, name, f"--{area} {name}", True, None, ())
    made = scene(installation(), tmp_path, judged=target(9, 0, gpu="h200", layout=Layout(tp=tp)))
    route = Route(answer=Answer.PASS, why="as the test says", destination=destination)
    return last_rungs(made, "vllm", asked, route, seen)[0]


def with_lines(tmp_path: Path, *lines: str) -> EngineLog:
    path = tmp_path / "server.log"
    path.write_text("\n".join([*GLM.read_text().splitlines(), *lines]))
    return read_log(str(path))


@pytest.mark.parametrize(
    ("area", "name", "destination", "line"),
    [
        ("attention", "FLASHMLA_SPARSE", SPARSE, 10),
        ("fp4-gemm", "marlin", LINEAR, 11),
        ("fp4-gemm", "marlin", "", 11),
        ("fp4-gemm", "weight-only", LINEAR, 11),
    ],
)
def test_what_a_real_log_says_was_chosen_ran(tmp_path: Path, area: str, name: str, destination: str, line: int) -> None:
    ran = step(tmp_path, area, name, Seen(log=read_log(GLM)), destination)
    assert ran.answer is Answer.PASS
    assert [proof.where for proof in ran.proofs] == [f"{GLM.name}:{line}"]
    # The same log proves nothing of a run on eight cards.
    apart = step(tmp_path, area, name, Seen(log=read_log(GLM)), destination, tp=8)
    assert apart.answer is Answer.NOT_KNOWN
    assert apart.why.startswith("the log is of another run (tensor parallelism 1, asked for 8): vLLM 0.20.2 ran ")


@pytest.mark.parametrize(
    ("area", "name", "why"),
    [
        ("attention", "FLASHMLA", "this log is of a run with FLASHMLA_SPARSE"),
        ("fp4-gemm", "cutlass", "this log is of a run with MarlinNvFp4LinearKernel"),
        ("fp4-gemm", "auto", "this log is of a run with MarlinNvFp4LinearKernel"),
    ],
)
def test_what_it_does_not_name_is_not_known(tmp_path: Path, area: str, name: str, why: str) -> None:
    found = step(tmp_path, area, name, Seen(log=read_log(GLM)), LINEAR if name == "auto" else "")
    assert (found.answer, found.why) == (Answer.NOT_KNOWN, why)


def test_a_choice_before_the_log_ends_is_none_that_ran(tmp_path: Path) -> None:
    path = tmp_path / "short.log"
    path.write_text("\n".join(GLM.read_text().splitlines()[:12]))
    found = executed_in(read_log(path), "attention", "FLASHMLA_SPARSE")
    assert found is not None
    assert found.why == "the engine chose FLASHMLA_SPARSE (line 10), but the log ends before a forward pass"


def test_kernels_of_a_real_trace_prove_attention_and_products(tmp_path: Path) -> None:
    seen = seen_in(str(bundled_example().traced.path), None)
    sparse = step(tmp_path, "attention", "FLASHMLA_SPARSE", seen, SPARSE)
    assert sparse.answer is Answer.PASS
    assert sparse.why.startswith("kernels of FlashMLA sparse ran for attention; it does not say: ")
    assert step(tmp_path, "attention", "FLASHMLA", seen).answer is Answer.NOT_KNOWN
    marlin = step(tmp_path, "fp4-gemm", "marlin", seen, LINEAR)
    assert marlin.why.startswith("kernels of Marlin ran for products outside the experts; ")
    # A log of the run and its trace prove it together; a log that names another backend decides.
    both = step(tmp_path, "attention", "FLASHMLA_SPARSE", msgspec.structs.replace(seen, log=read_log(GLM)), SPARSE)
    assert [proof.kind for proof in both.proofs] == ["log", "trace"]
    other = read_log(LOGS / "vllm-0.20.2-qwen3-graph.log")
    named = step(tmp_path, "attention", "FLASHMLA_SPARSE", msgspec.structs.replace(seen, log=other), SPARSE)
    assert (named.answer, named.why) == (Answer.NOT_KNOWN, "this log is of a run with FLASH_ATTN")


@pytest.mark.parametrize(
    ("label", "kernel", "ran"),
    [
        ("vLLM custom all-reduce", "vllm::cross_device_reduce_1stage", ["CustomAllreduce"]),
        ("SGLang custom all-reduce", "sglang::cross_device_reduce_1stage", ["CustomAllreduce"]),
        ("SGLang custom all-reduce", "all_reduce_one_shot_push_kernel", ["CustomAllReduceV2"]),
        ("SGLang custom all-reduce", "sglang::all_reduce_kernel", ["CustomAllReduceV2"]),
        ("PyTorch symmetric memory, multimem", "multimem_all_reduce_kernel", ["SymmMemCommunicator"]),
        ("NCCL", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", []),
    ],
)
def test_kernels_of_all_reduces_prove_their_communicator(
    tmp_path: Path, label: str, kernel: str, ran: list[str]
) -> None:
    seen = Seen(kernels={"all-reduce": {label: (158, kernel)}}, trace="t.json", card="NVIDIA H200")
    names = ("CustomAllreduce", "CustomAllReduceV2", "SymmMemCommunicator", "PyNcclCommunicator")
    steps = {name: step(tmp_path, "all-reduce", name, seen) for name in names}
    assert [name for name, found in steps.items() if found.answer is Answer.PASS] == ran
    for name in ran:
        assert steps[name].why.startswith(f"kernels of {label} ran for all-reduces; it does not say: ")


def test_custom_all_reduce_that_registers_buffers_ran(tmp_path: Path) -> None:
    log = with_lines(tmp_path, REGISTERED)
    ran = executed_in(log, "all-reduce", "CustomAllreduce")
    assert ran is not None
    assert ran.answer is Answer.PASS
    assert ran.why == "vLLM 0.20.2 ran custom all-reduce: buffers registered in CUDA graphs"
    assert executed_in(log, "all-reduce", "CustomAllReduceV2") is None
    assert executed_in(log, "all-reduce", "SymmMemCommunicator") is None


def test_what_an_engine_switched_off_did_not_run(tmp_path: Path) -> None:
    log = read_log(LOGS / "made-vllm-tp8-pcie.log")
    for name, why in (
        ("CustomAllreduce", "vLLM 0.20.2 says that custom all-reduce is off: more than two PCIe-only GPUs"),
        (
            "SymmMemCommunicator",
            "vLLM 0.20.2 says that symmetric memory all-reduce is off: Device capability 12.0 not supported",
        ),
    ):
        found = executed_in(log, "all-reduce", name)
        assert found is not None
        assert (found.answer, found.why) == (Answer.FAIL, why)
    alone = executed_in(with_lines(tmp_path, OFF.format(1)), "all-reduce", "CustomAllreduce")
    assert alone is not None
    assert alone.answer is Answer.FAIL
    # A smaller group of the run has a communicator of its own: that one is not what sums a layer.
    assert executed_in(with_lines(tmp_path, OFF.format(3)), "all-reduce", "CustomAllreduce") is None


def test_choices_are_told_with_their_area_and_are_nothing_odd(tmp_path: Path) -> None:
    log = read_log(GLM)
    judged = target(9, 0, gpu="h200")
    choices = choices_of(log, judged, {"vllm": "0.20.2"})
    assert [(made.area, made.other_run) for made in choices] == [
        ("moe", False), ("fp4-gemm", False), ("attention", False)
    ]  # fmt: skip
    assert [made.text for made in chosen(log)][1:] == [
        "vLLM 0.20.2 chose MarlinNvFp4LinearKernel for NVFP4",
        "vLLM 0.20.2 chose FLASHMLA_SPARSE, out of FLASHMLA_SPARSE",
    ]
    ran = step(tmp_path, "attention", "FLASHMLA_SPARSE", Seen(log=log), SPARSE)
    below = [passed(rung, "read") for rung in list(Rung)[:5]]
    above = [unknown(rung, "not timed") for rung in (Rung.CORRECT, Rung.FAST)]
    ladder = Ladder(area="attention", name="FLASHMLA_SPARSE", flag="--attention-backend FLASHMLA_SPARSE",
                    destination=SPARSE, steps=(*below, ran, *above))  # fmt: skip
    audit = Audit(
        machine=MachineSummary(name="here", python=""),
        target=judged,
        engines=(EngineAudit(name="vllm", version="0.20.2", distribution="vllm", place="/x", ladders=(ladder,)),),
        choices=choices,
        timings=Timings(asking_s=0, reading_s=0, importing_s=0, imported=0, cached=False),
    )
    saved = decode(encode(audit), {Audit.schema: Audit})
    assert isinstance(saved, Audit)
    audit = saved
    assert [(flag.flag, flag.proven) for flag in audit.flags] == [
        ("--attention-backend FLASHMLA_SPARSE", (Rung.EXECUTED,))
    ]
    text = re.sub(r"\s+", " ", render_text(audit_document(audit), width=120, colour=False))
    assert f"In the log, vLLM 0.20.2 chose FLASHMLA_SPARSE, out of FLASHMLA_SPARSE ({GLM.name}:10)." in text
    assert "• MoE: In the log, vLLM 0.20.2 chose MARLIN" in text.partition("What the engine chose besides")[2]
    assert "What is odd" not in text
    assert "Nobody has proved these" not in text
    elsewhere = choices_of(log, target(9, 0, gpu="h200", layout=Layout(tp=8)), {"vllm": "0.20.2"})
    assert all(made.other_run for made in elsewhere)
