"""`sublight audit` from outside: what it says beside the ladders, of variables that are set and of an engine's log."""

from pathlib import Path

import pytest

from tests.audit.machines import Environment
from tests.cli.test_audit import QUESTION, Sublight

ENVS = 'environment_variables = {"VLLM_LOGGING_LEVEL": str, "VLLM_FLASHINFER_ALLREDUCE_BACKEND": str}\n'
VLLM = {"vllm/__init__.py": "", "vllm/envs.py": ENVS}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def said(text: str, start: str) -> str:
    """One finding of a page, on one line."""
    items = " ".join(text.partition("What is odd")[2].partition("Flags worth trying")[0].split()).split(" • ")
    (found,) = [item for item in items if item.removeprefix("─").strip("─ •").startswith(start)]
    return found.strip("─ •")


def test_a_variable_that_a_flag_replaced_leads_to_the_flag(
    sublight: Sublight, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment(tmp_path / "env")
    environment.install("vllm", "0.33.0", VLLM)
    monkeypatch.setenv("VLLM_FLASHINFER_MOE_BACKEND", "latency")
    monkeypatch.setenv("VLLM_LOGING_LEVEL", "DEBUG")
    run = sublight("audit", "vllm", "--python", environment.python, *QUESTION, "--no-import")
    assert run.code == 0, run.err
    no_effect = "it is set, and nothing in this version of vllm reads it: it has no effect"
    assert said(run.out, "VLLM_FLASHINFER_MOE_BACKEND") == (
        f"VLLM_FLASHINFER_MOE_BACKEND: {no_effect}. Try: unset it and set --moe-backend."
    )
    assert said(run.out, "VLLM_LOGING_LEVEL").endswith("Try: VLLM_LOGGING_LEVEL.")
