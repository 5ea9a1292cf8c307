"""Released wheels through the whole audit: what is known of them comes out, with lines."""

from pathlib import Path

import pytest

from sublight.audit.auditor import Auditor, Options
from sublight.audit.cache import Cache
from sublight.audit.doors import FolderDoor
from sublight.audit.ladder import Answer, Ladder, Rung
from sublight.audit.question import ask, card
from sublight.audit.record import Audit
from sublight.audit.summary import audit, audit_symbols
from sublight.facts.gpu import get_gpu
from sublight.facts.workload import Layout
from tests.audit.wheels import installed

pytestmark = pytest.mark.wheels
WHEELS = ("sglang==0.5.9", "flashinfer-python==0.6.3", "sgl-kernel==0.3.21")


@pytest.fixture(scope="module")
def door() -> FolderDoor:
    return FolderDoor([installed(wheel) for wheel in WHEELS])


@pytest.fixture(scope="module")
def on_a_workstation(door: FolderDoor) -> Audit:
    question = ask("glm-5-nvfp4", card("rtx-pro-6000-server", None), Layout(tp=8))
    return audit(Auditor(door, Options(engines=("sglang",), areas=("moe",)), Cache(None)), question)


def ladder(made: Audit, name: str) -> Ladder:
    return next(ladder for ladder in made.engines[0].ladders if ladder.name == name)


def rung(made: Audit, name: str, wanted: Rung):
    return next(step for step in ladder(made, name).steps if step.rung is wanted)


def test_accepted_and_something_else_runs(on_a_workstation: Audit) -> None:
    """Plain tensor parallelism on SM120: seven of the nine names end at the same CUTLASS kernel."""
    ladders = [found for found in on_a_workstation.engines[0].ladders if found.steps[0].answer is Answer.PASS]
    assert len(ladders) == 9
    at_cutlass = [found.name for found in ladders if found.destination.endswith(".cutlass_moe_fp4")]
    assert len(at_cutlass) == 7
    step = rung(on_a_workstation, "flashinfer_cutedsl", Rung.REACHABLE)
    assert step.answer is Answer.FAIL
    assert "cutlass_moe_fp4" in step.why
    assert any(proof.where.startswith("sglang/srt/layers/quantization/modelopt_quant.py:") for proof in step.proofs)
    assert step.hint.endswith("deepep leads to flashinfer_cutedsl_moe_masked, which is not capable here")


def test_the_flag_to_copy_does_not_lead_into_the_trap(door: FolderDoor) -> None:
    """Without its all-to-all the name runs CUTLASS, and in this all-to-all's default mode prompts are refused."""
    question = ask("glm-5-nvfp4", card("b200", None), Layout(tp=8, ep=8), a2a="deepep")
    made = audit(Auditor(door, Options(engines=("sglang",), areas=("moe",)), Cache(None)), question)
    assert [flag.flag for flag in made.flags] == [
        "--moe-runner-backend flashinfer_cutedsl --moe-a2a-backend deepep --ep-size 8 --deepep-mode low_latency"
    ]


def test_pins_owners_and_shipped_code(on_a_workstation: Audit) -> None:
    assert rung(on_a_workstation, "cutlass", Rung.INSTALLED).why == "sglang 0.5.9, sgl-kernel 0.3.21"
    cutlass = rung(on_a_workstation, "cutlass", Rung.CAPABLE)
    assert cutlass.answer is Answer.PASS
    assert "149 of 342 units are built for sm_120" in cutlass.why
    refused = rung(on_a_workstation, "flashinfer_trtllm", Rung.CAPABLE)
    assert refused.answer is Answer.FAIL
    assert "flashinfer/jit/fused_moe.py:" in refused.why
    assert not any(flag.flag.endswith(("trtllm", "cutedsl")) for flag in on_a_workstation.flags)


@pytest.mark.parametrize("name", ["flashinfer.cute", "flashinfer.jit.cutedsl"])
def test_a_guessed_path_is_told_where_the_symbol_lives(door: FolderDoor, name: str) -> None:
    made = audit_symbols(Auditor(door, Options(), Cache(None), ["flashinfer"]), [name])
    (found,) = made.symbols
    assert found.answer is Answer.FAIL
    assert "flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked" in found.instead


def test_the_right_path_and_the_assert_behind_it(door: FolderDoor) -> None:
    name = "flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked"
    auditor = Auditor(door, Options(), Cache(None), ["flashinfer"])
    (found,) = audit_symbols(auditor, [name], get_gpu("rtx-pro-6000-server")).symbols
    assert found.home == name
    assert found.gates[0].answer is Answer.FAIL
    assert found.gates[0].targets == ("10.0", "10.3")
    assert found.gates[0].proof.where.startswith("flashinfer/cute_dsl/blockscaled_gemm.py:53")
    (on_b200,) = audit_symbols(auditor, [name], get_gpu("b200")).symbols
    assert {gate.answer for gate in on_b200.gates} == {Answer.PASS}


def test_a_misspelt_name_in_a_copy_of_the_wheel(tmp_path: Path) -> None:
    """The answer follows the source: renamed there, found under the new name."""
    source = installed("flashinfer-python==0.6.3") / "flashinfer"
    for name in ("__init__.py", "cute_dsl/__init__.py", "cute_dsl/blockscaled_gemm.py", "cute_dsl/utils.py"):
        path = tmp_path / "flashinfer" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((source / name).read_text().replace("def grouped_gemm_nt_masked(", "def grouped_gemm_renamed("))
    auditor = Auditor(FolderDoor([tmp_path]), Options(), Cache(None), ["flashinfer"])
    (old,) = audit_symbols(auditor, ["flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked"]).symbols
    assert old.answer is Answer.FAIL
    (new,) = audit_symbols(auditor, ["flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_renamed"]).symbols
    assert new.home == "flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_renamed"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("glm-5-nvfp4", ""),  # whose experts no name sends to Triton, though attention has a kernel in it
        ("deepseek-v3", "a call with M > E fails, which prefill is; decode rows fit, with 64 x 128 x 128, 4 stages"),
    ],
)
def test_a_tile_is_told_where_experts_reach_triton(door: FolderDoor, model: str, said: str) -> None:
    question = ask(model, card("rtx-pro-6000-server", None), Layout(tp=8))
    options = Options(engines=("sglang",), areas=("moe", "attention"))
    found = [
        each.text for each in audit(Auditor(door, options, Cache(None)), question).findings if "Triton" in each.subject
    ]
    assert len(found) == bool(said)
    assert all("147,456 bytes" in text and said in text for text in found)
