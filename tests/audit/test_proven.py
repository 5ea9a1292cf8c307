"""Executed, correct, fast: only a log, a trace or a trial proves them, and only for the kernel that really ran."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sublight.audit import proven
from sublight.audit.engines.base import Declaration, Route
from sublight.audit.installation import Installation
from sublight.audit.kernelnames import LABELS, NAMED, labels_of
from sublight.audit.ladder import Answer, Ladder, Proof, Rung, Step, failed, passed, unknown
from sublight.audit.log import Known, read_log
from sublight.audit.log.record import FactKind
from sublight.audit.origin import of_log as of_log_origin
from sublight.audit.proven import Seen, last_rungs
from sublight.audit.question import ask, card
from sublight.audit.replies import Card, Cards
from sublight.audit.scene import Scene, Trying
from sublight.audit.seen import of_another_run, of_log, seen_in
from sublight.facts.workload import Layout
from sublight.gap.example import bundled_example
from sublight.registry import Registry
from sublight.report.views.audit import verdict_cell
from sublight.trace import classify
from tests.audit.scenes import distribution, installation, scene, target

LOGS = Path(__file__).parents[1] / "data" / "logs"
MARLIN = "vllm.model_executor.layers.fused_moe.fused_marlin_moe.MarlinExperts"


def declaration(name: str) -> Declaration:
    return Declaration("moe", name, f"--moe-backend {name}", True, None, ())


def route(destination: str, answer: Answer = Answer.PASS) -> Route:
    return Route(answer=answer, why="as the test says", destination=destination)


def with_cards(*cards: Card, **more: object) -> Installation:
    return msgspec.structs.replace(installation(), cards=Cards(driver=cards, **more))


def answers(where: Installation, tmp_path: Path, name: str, destination: str, seen: Seen, **more: object) -> list[Step]:
    made: Scene = scene(where, tmp_path, judged=target(9, 0, gpu="h200"), **more)
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
    assert {step.why for step in found} == {"not tried: nobody asked for it"}
    assert found[0].hint == "--log with the engine's own log, or --trace with a profile of a few decode steps"
    other = answers(with_cards(Card("NVIDIA H200", 9, 0)), tmp_path, "emulation", "x.Nvfp4Emulation", Seen())
    assert {step.why for step in other} == {"no small call is known for this backend, which leads to x.Nvfp4Emulation"}


def test_another_card_of_the_same_architecture_is_not_the_judged_one(tmp_path: Path) -> None:
    found = answers(with_cards(Card("NVIDIA H100 80GB HBM3", 9, 0)), tmp_path, "marlin", MARLIN, Seen())
    assert {step.why for step in found} == {
        "no GPU was there to run it on: the machine has NVIDIA H100 80GB HBM3, which is no h200"
    }


class Trial:
    def fits(self, route: Route) -> bool:
        return route.destination.endswith("MarlinExperts")

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
    h200 = with_cards(Card("NVIDIA H200", 9, 0))
    found = answers(h200, tmp_path, "marlin", MARLIN, Seen(), trying=Trying("/env/bin/python", 9.0))
    assert [step.answer for step in found] == [Answer.PASS, Answer.FAIL, Answer.FAIL]
    # Another name that leads to the same kernel, one that leads elsewhere, and another card.
    alike = answers(h200, tmp_path, "auto", MARLIN, Seen(), trying=Trying("/env/bin/python", 9.0))
    assert alike == found
    elsewhere = answers(h200, tmp_path, "marlin", "x.CutlassExperts", Seen(), trying=Trying("/env/bin/python", 9.0))
    assert {step.why for step in elsewhere} == {
        "no small call is known for this backend, which leads to x.CutlassExperts"
    }
    b200 = with_cards(Card("NVIDIA B200", 10, 0))
    other = answers(b200, tmp_path, "marlin", MARLIN, Seen(), trying=Trying("/env/bin/python", 9.0))
    assert {step.answer for step in other} == {Answer.NOT_KNOWN}


def test_nothing_is_tried_that_was_not_asked_for_or_leads_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Registry("trial", "sublight.no_such_group", {"vllm.moe.marlin": "tests.audit.test_proven:TRIAL"})
    monkeypatch.setattr(proven, "TRIALS", trials)
    h200 = with_cards(Card("NVIDIA H200", 9, 0))
    found = answers(h200, tmp_path, "marlin", MARLIN, Seen(), not_tried="--try was not given")
    assert {step.why for step in found} == {"not tried: --try was not given"}
    assert found[0].hint.startswith("--try, which makes a small call on this GPU; or --log")
    made = scene(h200, tmp_path, judged=target(9, 0, gpu="h200"), trying=Trying("/env/bin/python", 9.0))
    below = failed(Rung.REACHABLE, "it runs another", hint="another layout")
    refused = last_rungs(made, "vllm", declaration("marlin"), route(MARLIN), Seen(), against=below)
    assert {step.why for step in refused} == {"not tried, because it is not reachable"}
    # What reading says against the kernel, a call may disprove.
    below = failed(Rung.INSTALLED, "no distribution", hint="install it")
    called = last_rungs(made, "vllm", declaration("marlin"), route(MARLIN), Seen(), against=below)
    assert called[0].answer is Answer.PASS


def ladder(*given: Step) -> Ladder:
    by_rung = {step.rung: step for step in (passed(Rung.DECLARED, "it is"), *given)}
    steps = tuple(by_rung.get(rung) or unknown(rung, "nobody looked") for rung in Rung)
    return Ladder(area="moe", name="a", flag="--moe a", steps=steps)


def test_what_a_log_shows_running_stands_beside_what_was_read() -> None:
    """A log may be of another installation: the "no" stays, and says what contradicts it, once."""
    lost = failed(Rung.INSTALLED, "x is not installed", hint="install it")
    ran = passed(Rung.EXECUTED, "the log says so", Proof("log", "server.log:12", "Using TRITON"))
    found = ladder(lost, ran)
    assert found.verdict is not None
    assert found.verdict.why == (
        "x is not installed; the log (server.log:12) contradicts that, or is of another installation: the log says so"
    )
    assert verdict_cell(found).text == "not installed, yet it ran"
    assert msgspec.convert(msgspec.to_builtins(found), Ladder) == found
    assert ladder(lost).steps[2] == lost
    # That nobody can ask for a name is no contradiction: the engine chose it by itself.
    inside = failed(Rung.DECLARED, "in an enumeration only", hint="none")
    assert ladder(inside, ran).steps[0] == inside


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
    seen = seen_in(trace, None)
    assert list(seen.kernels["moe"]) == ["Marlin"]
    assert seen.kernels["moe"]["Marlin"][0] == 150  # two products in each of 75 layers
    assert (seen.card, seen.capability) == ("NVIDIA H200", (9, 0))
    ran = answers(installation(), tmp_path, "marlin", MARLIN, seen)[0]
    assert ran.answer is Answer.PASS
    assert ran.why.startswith("kernels of Marlin ran for the experts; it does not say: ")
    assert "card" not in ran.why
    assert ran.why.endswith("engine version, model, which backend was asked for")
    other = answers(installation(), tmp_path, "cutlass", "x.cutlass_moe_fp4", seen)[0]
    assert other.answer is Answer.NOT_KNOWN
    b200 = scene(installation(), tmp_path, judged=target(10, 0, gpu="b200"))
    step = last_rungs(b200, "vllm", declaration("marlin"), route(MARLIN), seen)[0]
    assert step.answer is Answer.NOT_KNOWN
    assert step.why == (
        "the trace is of another run (card h200, asked for b200): kernels of Marlin ran for the experts"
    )
    (finding,) = of_another_run(seen, b200.target, "")
    assert finding.text == "it is of another run, and proves nothing for this target: card h200, asked for b200"


@pytest.mark.parametrize(
    ("changes", "version", "differs"),
    [
        ({}, "0.20.2", ()),
        ({}, "0.33.0", ("engine version 0.20.2, asked for 0.33.0",)),
        ({"layout": Layout(tp=8)}, "", ("tensor parallelism 1, asked for 8",)),
        ({"architecture": "Qwen3MoeForCausalLM"}, "", ("architecture GlmMoeDsaForCausalLM, asked for Qwen3Moe",)),
        ({"method": "fp8"}, "", ("quantisation modelopt_fp4, asked for fp8",)),
        ({"layout": Layout(tp=8, dp=8)}, "", ("data parallelism 1, asked for 8",)),
    ],
)
def test_a_log_proves_only_for_the_run_that_it_is_of(
    tmp_path: Path, changes: dict[str, Any], version: str, differs: tuple[str, ...]
) -> None:
    log = read_log(LOGS / "vllm-0.20.2-glm5-graph.log")
    judged = target(9, 0, gpu="h200", **changes)
    engine = distribution("vllm", version) if version else None
    made = scene(installation(), tmp_path, judged=judged, engine=engine)
    step = last_rungs(made, "vllm", declaration("marlin"), route(MARLIN), Seen(log=log))[0]
    assert step.answer is (Answer.NOT_KNOWN if differs else Answer.PASS)
    found = of_log_origin(log, judged, version).differs
    assert len(found) == len(differs)
    assert all(said.startswith(wanted) for said, wanted in zip(found, differs, strict=True))
    if not differs:
        assert step.why.endswith("; it does not say: card, layers, expert parallelism")
    else:
        assert step.why.startswith(f"the log is of another run ({found[0]}): ")


def test_a_log_that_names_its_card_is_compared_by_it() -> None:
    log = read_log(LOGS / "sglang-0.5.16-qwen3-fp8-graph.log")
    for gpu, differs in (("h200", ()), ("b200", ("card h200, asked for b200",))):
        judged = target(9, 0, gpu=gpu, method="fp8")
        assert of_log_origin(log, judged, "").differs == differs


def test_a_trace_proves_the_name_that_the_log_says_was_asked_for(tmp_path: Path) -> None:
    """Three names lead to a kernel with the same word; the run asked for one of them."""
    log = read_log(LOGS / "sglang-0.5.16-qwen3-nvfp4-graph.log")
    seen = Seen(kernels={"moe": {"Marlin": (96, "Marlin")}}, trace="t.json", card="NVIDIA H200", log=log)
    made = scene(installation(), tmp_path, judged=target(9, 0, gpu="h200"))
    found = {
        name: last_rungs(made, "sglang", declaration(name), route("sglang.marlin.run"), seen)[0]
        for name in ("auto", "marlin", "experimental_sgl_marlin")
    }
    assert {step.answer for step in found.values()} == {Answer.NOT_KNOWN}
    assert found["auto"].why.endswith("hangs on more, of which nothing is said: engine version, architecture")
    named = msgspec.structs.replace(log.facts[0], kind=FactKind.ARCHITECTURE, fields={"name": made.target.architecture})
    told = msgspec.structs.replace(log, engine_version="0.5.16", facts=(*log.facts, named))
    ran = last_rungs(made, "sglang", declaration("auto"), route("sglang.marlin.run"),
                     msgspec.structs.replace(seen, log=told))[0]  # fmt: skip
    assert ran.answer is Answer.PASS
    assert found["marlin"].why == (
        "kernels of Marlin ran for the experts in a run that asked for auto; other names may lead to other kernels of "
        "that kind"
    )


def test_kernels_prove_nothing_for_a_name_that_leads_elsewhere(tmp_path: Path) -> None:
    seen = Seen(kernels={"moe": {"CUTLASS grouped GEMM": (4, "cutlass::Kernel")}}, trace="t.json")
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
    named = {label for names in NAMED.values() for labels in names.values() for label in labels}
    assert {label for _, labels in LABELS for label in labels} | named <= given


def test_findings_of_a_log_and_of_the_wrong_log() -> None:
    log = read_log(LOGS / "sglang-0.5.16-qwen3-nvfp4-graph.log")
    question = ask("qwen3-30b-a3b", card("h200", None), Layout())
    known = Known(model=question.model, gpu=question.gpu)
    found = list(of_log(log, known, ["sglang"]))
    assert any("humming" in finding.text for finding in found)
    wrong = next(iter(of_log(log, known, ["vllm"])))
    assert wrong.text.startswith("it is a log of sglang, which is not audited here")


def test_a_trace_proves_auto_only_where_all_is_told_that_it_hangs_on(tmp_path: Path) -> None:
    """A name that was asked for is one kernel; what auto leads to is another on the next card or version."""
    seen = Seen(kernels={"moe": {"Marlin": (96, "Marlin")}}, trace="t.json", card="NVIDIA H200")
    made = scene(installation(), tmp_path, judged=target(9, 0, gpu="h200"))
    named, auto = (
        last_rungs(made, "sglang", declaration(name), route("sglang.marlin.run"), seen)[0]
        for name in ("marlin", "auto")
    )
    assert (named.answer, auto.answer) == (Answer.PASS, Answer.NOT_KNOWN)
    assert auto.why == (
        "kernels of Marlin ran for the experts, but what auto leads to hangs on more, of which nothing is said: "
        "engine version, model, which backend was asked for"
    )
