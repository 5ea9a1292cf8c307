"""A second process for a part of the reading: its answer, or that of the first where it fails."""

import os

import pytest

from sublight.audit import beside as module
from sublight.audit.beside import beside
from sublight.audit.routes import _halves


def test_the_answer_comes_from_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "possible", lambda: True)
    with beside(os.getpid, int) as wait:
        assert wait() != os.getpid()


def test_where_the_other_process_dies_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "possible", lambda: True)
    here = os.getpid()

    def dies_elsewhere() -> int:
        if os.getpid() != here:
            os._exit(3)
        return here

    with beside(dies_elsewhere, int) as wait:
        assert wait() == here


def test_without_a_second_process_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "possible", lambda: False)
    with beside(os.getpid, int) as wait:
        assert wait() == os.getpid()


def test_halves_hold_about_as_many_backends() -> None:
    assert _halves({"moe": 24, "fp4-gemm": 6, "attention": 26}) == (["moe"], ["attention", "fp4-gemm"])
    whole = {"moe": 22, "fp4-gemm": 6, "attention": 25, "all-reduce": 12}
    assert _halves(whole) == (["moe", "fp4-gemm"], ["attention", "all-reduce"])
    assert _halves({"moe": 1, "attention": 1}) == (["attention"], ["moe"])
    assert _halves({"moe": 24}) == (["moe"], [])
    assert _halves({}) == ([], [])
