"""FP4 products of SGLang: the backend that a call names decides what its library asks of the card."""

import pytest

from sublight.audit.engines.sglang import gemm
from sublight.audit.ladder import Answer
from sublight.audit.question import ask, card
from sublight.audit.target import Target
from sublight.facts.workload import Layout
from tests.audit.wheels import sources

pytestmark = pytest.mark.wheels

VERSIONS = [
    (("sglang==0.5.23", "flashinfer-python==0.7.2"), "flashinfer/gemm/gemm_base.py:7558", ("10.0", "10.3", "10.7")),
    (("sglang==0.5.9", "flashinfer-python==0.6.3"), "flashinfer/gemm/gemm_base.py:2687", ("10.0", "10.3")),
]
IDS = ["0.5.23", "0.5.9"]


def target(gpu: str) -> Target:
    return ask("glm-5-nvfp4", card(gpu, None), Layout(tp=8)).target


@pytest.mark.parametrize(("read", "where", "cards"), VERSIONS, ids=IDS)
@pytest.mark.parametrize(("gpu", "answer"), [("rtx-pro-6000-server", Answer.FAIL), ("b200", Answer.PASS)])
def test_trtllm_is_for_the_cards_that_its_requirement_lists(
    read: tuple[str, ...], where: str, cards: tuple[str, ...], gpu: str, answer: Answer
) -> None:
    found = gemm.route(sources(*read), "flashinfer_trtllm", target(gpu))
    assert (found.answer, found.why) == (Answer.PASS, 'flashinfer.mm_fp4(backend="trtllm") runs')
    assert [(g.answer, g.targets, g.claim) for g in found.gates if g.proof.where == where] == [(answer, cards, False)]


@pytest.mark.parametrize(("read", "where", "cards"), VERSIONS, ids=IDS)
def test_cutlass_is_let_through_on_the_card_that_trtllm_refuses(
    read: tuple[str, ...], where: str, cards: tuple[str, ...]
) -> None:
    found = gemm.route(sources(*read), "flashinfer_cutlass", target("rtx-pro-6000-server"))
    assert where not in [gate.proof.where for gate in found.gates]
    assert {gate.answer for gate in found.gates} == {Answer.PASS}
    assert any("12.0" in gate.targets for gate in found.gates)


def test_without_the_library_its_gates_are_not_known() -> None:
    found = gemm.route(sources("sglang==0.5.9"), "flashinfer_trtllm", target("rtx-pro-6000-server"))
    assert [gate for gate in found.gates if gate.targets] == []
