"""Errors say what was asked, what was found, and what to try; unknown names name the near misses."""

import pytest

from sublight.errors import SublightError, UnknownNameError, near_misses
from sublight.registry import Registry

GPUS = ["rtx-pro-6000-server", "rtx-pro-6000-workstation", "h100-sxm", "h200", "b200", "b300", *"abcdefghij"]


@pytest.mark.parametrize(
    ("name", "first"),
    [("RTX PRO 6000 Server", "rtx-pro-6000-server"), ("h20O", "h200"), ("B-200", "b200"), ("h100", "h100-sxm")],
)
def test_near_misses(name: str, first: str) -> None:
    assert near_misses(name, GPUS)[0] == first


def test_nothing_is_near() -> None:
    assert near_misses("zzzzzz", GPUS) == []
    error = UnknownNameError("GPU", "zzzzzz", GPUS)
    assert error.hint.startswith("one of the 16 known names")
    assert str(error) == f"GPU 'zzzzzz': no such name is known. Try: {error.hint}"
    assert isinstance(error, SublightError)
    assert error.exit_code == 2


def test_few_names_are_all_named() -> None:
    assert UnknownNameError("format", "zz", ["fp8", "bf16"]).hint == "one of bf16, fp8"


def test_registry_loads_late_and_knows_its_names() -> None:
    registry = Registry("thing", "sublight.none", {"join": "posixpath:join", "bad": "no.such.module:x"})
    assert registry.load("join")("a", "b") == "a/b"
    assert registry.names() == ["bad", "join"]
    assert "bad" in registry and "worse" not in registry
    with pytest.raises(UnknownNameError) as error:
        registry.load("joim")
    assert error.value.hint == "join"
