"""Gates that a route gets from the libraries it calls: the kernel's own list counts, a helper's refusal does too."""

from pathlib import Path

import msgspec
import pytest

from sublight.audit import routes
from sublight.audit.engines.base import Declaration, Gate, Need, Route
from sublight.audit.ladder import Answer, Proof
from sublight.audit.routes import _answered
from sublight.audit.source.tree import Sources
from sublight.audit.target import Target
from tests.audit.reading import target, written
from tests.audit.tiny import Tiny

KERNEL, HELPER = "flashinfer.moe.run", "flashinfer.quantise"
TARGETS = {KERNEL: ("10.0", "12.0"), HELPER: ("12.0",)}


class OneWay(Tiny):
    def __init__(self, destination: str) -> None:
        self.destination = destination

    def route(self, _sources: Sources, _declaration: Declaration, _target: Target) -> Route:
        needs = tuple(Need(symbol, "tiny/backends.py:1", "lazy") for symbol in (HELPER, KERNEL))
        return Route(answer=Answer.PASS, why="", destination=self.destination, needs=needs)


def gates(
    monkeypatch: pytest.MonkeyPatch, folder: Path, answer: Answer = Answer.PASS, destination: str = KERNEL
) -> dict[str, tuple[str, ...]]:
    def told(_sources: Sources, symbol: str, _capability: tuple[int, int]) -> tuple[Gate, ...]:
        given = answer if symbol == HELPER else Answer.PASS
        return (Gate(given, f"list of {symbol}", Proof("source", symbol, ""), TARGETS[symbol]),)

    monkeypatch.setattr(routes, "symbol_gates", told)
    sources = written(folder, {"tiny/backends.py": "x = 1\n"})
    declared = Declaration("moe", "one", "--moe one", True, None, ())
    found = _answered(OneWay(destination), sources, declared, target((12, 0)), {})  # type: ignore[arg-type]
    return {gate.text: gate.targets for gate in found.route.gates}


def test_the_kernels_own_list_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert gates(monkeypatch, tmp_path) == {f"list of {KERNEL}": ("10.0", "12.0"), f"list of {HELPER}": ()}


def test_a_helper_that_refuses_keeps_its_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert gates(monkeypatch, tmp_path, Answer.FAIL)[f"list of {HELPER}"] == ("12.0",)


def test_without_a_kernel_among_them_every_list_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = gates(monkeypatch, tmp_path, destination="engine.moe.strings_it_together")
    assert set(found.values()) == {("10.0", "12.0"), ("12.0",)}


def test_gates_that_the_route_has_of_its_kernel_are_not_mixed_with_those_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = Gate(Answer.PASS, "of one backend", Proof("source", "flashinfer/gemm.py:7", ""), ("10.0",))

    class Told(OneWay):
        def route(self, sources: Sources, declaration: Declaration, asked: Target) -> Route:
            return msgspec.structs.replace(super().route(sources, declaration, asked), gates=(own,))

    monkeypatch.setattr(f"{__name__}.OneWay", Told)
    assert gates(monkeypatch, tmp_path) == {"of one backend": ("10.0",), f"list of {HELPER}": ()}
