"""Executed, correct, fast: only a log, a trace or a trial proves them, and only for the kernel that really ran."""

from pathlib import Path

import msgspec
import pytest

from sublight.audit import proven
from sublight.audit.engines.base import Declaration, Route
from sublight.audit.installation import Installation
from sublight.audit.ladder import Answer, Proof, Rung, Step, failed, passed
from sublight.audit.log import read_log
from sublight.audit.proven import Seen, labels_of, last_rungs
from sublight.audit.question import ask, card
from sublight.audit.replies import Card, Cards
from sublight.audit.scene import Scene
from sublight.audit.seen import kernels_of, of_log
from sublight.facts.workload import Layout
from sublight.gap.example import bundled_example
from sublight.registry import Registry
from sublight.trace import classify
from tests.audit.scenes import installation, scene, target

LOGS = Path(__file__).parents[1] / "data" / "logs"
MARLIN = "vllm.model_executor.layers.fused_moe.fused_marlin_moe.MarlinExperts"


def declaration(name: str) -> Declaration:
    return Declaration("moe", name, f"--moe-backend {name}", True, None, ())


def route(destination: str, answer: Answer = Answer.PASS) -> Route:
    return Route(answer=answer, why="as the test says", destination=destination)


def with_cards(*cards: Card, **more: object) -> Installation:
    return msgspec.structs.replace(installation(), cards=Cards(driver=cards, **more))


def answers(where: Installation, tmp_path: Path, name: str, destination: str, seen: Seen) -> list[Step]:
    made: Scene = scene(where, tmp_path, judged=target(9, 0, gpu="h200"))
    return list(last_rungs(made, "vllm", declaration(name), route(destination), seen))


def test_without_a_gpu_nothing_passes(tmp_path: Path) -> None:
    found = answers(with_cards(smi_error="nvidia-smi is not there"), tmp_path, "marlin", MARLIN, Seen())
    assert [step.rung for step in found] == [Rung.EXECUTED, Rung.CORRECT, Rung.FAST]
    assert {step.answer for step in found} == {Answer.NOT_KNOWN}
    assert found[0].why == "no GPU was there to run it on (nvidia-smi is not there)"
    assert "--log" in found[0].hint


def test_another_card_than_the_judged_one_proves_nothing(tmp_path: Path) -> None:
    found = answers(with_cards(Card("NVIDIA B200", 10, 0)), tmp_path, "marlin", MARLIN, Seen())
    assert found[0].why == "no GPU was there to run it on: the machine has NVIDIA B200, which is no sm_90"


def test_the_right_card_without_a_trial_is_not_known(tmp_path: Path) -> None:
    found = answers(with_cards(Card("NVIDIA H200", 9, 0)), tmp_path, "marlin", MARLIN, Seen())
    assert {step.why for step in found} == {"no small call is known for this backend"}


class Trial:
    def steps(self, scene: Scene, route: Route) -> tuple[Step, Step, Step]:
        proof = Proof("command", "trial", f"{scene.target.sm} {route.destination}")
        wrong = failed(Rung.CORRECT, "NaN in 100 % of elements at M = 1", proof, hint="another backend")
        return (
            passed(Rung.EXECUTED, "it returned", proof),
            wrong,
            failed(Rung.FAST, "not timed", hint="a correct kernel"),
        )


TRIAL = Trial()


def test_a_trial_answers_on_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Registry("trial", "sublight.no_such_group", {"vllm.moe.marlin": "tests.audit.test_proven:TRIAL"})
    monkeypatch.setattr(proven, "TRIALS", trials)
    found = answers(with_cards(Card("NVIDIA H200", 9, 0)), tmp_path, "marlin", MARLIN, Seen())
    assert [step.answer for step in found] == [Answer.PASS, Answer.FAIL, Answer.FAIL]
    other = answers(with_cards(Card("NVIDIA B200", 10, 0)), tmp_path, "marlin", MARLIN, Seen())
    assert {step.answer for step in other} == {Answer.NOT_KNOWN}


def test_a_log_of_the_engine_proves_what_it_chose(tmp_path: Path) -> None:
    log = read_log(LOGS / "vllm-0.20.2-glm5-graph.log")
    ran = answers(installation(), tmp_path, "marlin", MARLIN, Seen(log=log))[0]
    assert ran.answer is Answer.PASS
    assert ran.proofs[0].where.startswith("vllm-0.20.2-glm5-graph.log:")
    other = answers(installation(), tmp_path, "flashinfer_cutlass", "x.FlashInferExperts", Seen(log=log))[0]
    assert other.answer is Answer.NOT_KNOWN
    assert other.why == "this log is of a run with MARLIN"


def test_kernels_of_a_real_trace_are_told_by_name(tmp_path: Path) -> None:
    """The bundled slice of a run on one H200: the experts' GEMMs are Marlin's."""
    trace = str(bundled_example().traced.path)
    kernels = kernels_of(trace)
    assert list(kernels) == ["Marlin"]
    assert kernels["Marlin"][0] == 150  # two products in each of 75 layers
    ran = answers(installation(), tmp_path, "marlin", MARLIN, Seen(kernels=kernels, trace=trace))[0]
    assert (ran.answer, ran.why) == (Answer.PASS, "kernels of Marlin ran for the experts")
    other = answers(installation(), tmp_path, "cutlass", "x.cutlass_moe_fp4", Seen(kernels=kernels, trace=trace))[0]
    assert other.answer is Answer.NOT_KNOWN


def test_kernels_prove_nothing_for_a_name_that_leads_elsewhere(tmp_path: Path) -> None:
    seen = Seen(kernels={"CUTLASS grouped GEMM": (4, "cutlass::Kernel")}, trace="t.json")
    made = scene(installation(), tmp_path)
    for answer in (Answer.FAIL, Answer.NOT_KNOWN):
        asked = declaration("flashinfer_cutedsl")
        step = last_rungs(made, "sglang", asked, route("x.cutlass_moe_fp4", answer), seen)[0]
        assert step.answer is Answer.NOT_KNOWN


@pytest.mark.parametrize(
    ("name", "destination", "labels"),
    [
        ("flashinfer_cutlass", "flashinfer.fused_moe.cutlass_fused_moe", ("TensorRT-LLM CUTLASS MoE",)),
        ("flashinfer_cutedsl", "sglang.srt.layers.moe.cutlass_moe.cutlass_moe_fp4", ("CUTLASS grouped GEMM",)),
        ("flashinfer_trtllm", "flashinfer.fused_moe.trtllm_fp4_block_scale_moe", ("TRT-LLM-gen MoE",)),
        ("marlin", MARLIN, ("Marlin",)),
        ("auto", "sglang.kernels.ops.moe.fused_moe_triton_kernels.fused_moe_kernel", ("Triton fused MoE",)),
        ("emulation", "vllm.x.Nvfp4Emulation", ()),
    ],
)
def test_labels_follow_the_destination(name: str, destination: str, labels: tuple[str, ...]) -> None:
    assert labels_of(name, destination) == labels


def test_every_label_is_one_that_rules_give() -> None:
    folder = Path(classify.__file__).parent / "rules"
    given = {rule.backend for path in folder.glob("*.toml") for rule in classify.read_rules(path)}
    assert {label for _, labels in proven._LABELS for label in labels} <= given


def test_findings_of_a_log_and_of_the_wrong_log() -> None:
    log = read_log(LOGS / "sglang-0.5.16-qwen3-nvfp4-graph.log")
    question = ask("qwen3-30b-a3b", card("h200", None), Layout())
    found = list(of_log(log, question, ["sglang"], {}, frozenset()))
    assert any("humming" in finding.text for finding in found)
    wrong = next(iter(of_log(log, question, ["vllm"], {}, frozenset())))
    assert wrong.text.startswith("it is a log of sglang, which is not audited here")
