"""A library beside an engine is told in a line, and audited by itself only when it is named."""

from pathlib import Path

import pytest

from sublight.audit.engines.flashinfer import FLASHINFER
from sublight.registry import Registry
from tests.audit.machines import Environment
from tests.audit.test_run import audited, door
from tests.audit.tiny import SOURCE, Tiny


class Box(Tiny):
    name = "box"
    library = True


BOX = Box()


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    engines = Registry("engine", "sublight.no_such_group", {"tiny": "tests.audit.tiny:TINY", "box": f"{__name__}:BOX"})
    monkeypatch.setattr("sublight.audit.auditor.ENGINES", engines)
    env = Environment(tmp_path / "env")
    env.install("tiny-engine", "2.0", {"tiny/__init__.py": "", "tiny/backends.py": SOURCE})
    return env


def test_a_library_beside_an_engine_is_one_line(environment: Environment) -> None:
    made = audited(door(environment))
    assert [engine.name for engine in made.engines] == ["tiny"]
    (told,) = [finding for finding in made.findings if finding.subject == "box"]
    assert told.level == "info"
    assert told.hint == "sublight audit box, with the same options, for every entry point of its own"


def test_a_library_that_is_named_is_audited(environment: Environment) -> None:
    made = audited(door(environment), engines=("box",))
    assert [engine.name for engine in made.engines] == ["box"]
    assert [finding for finding in made.findings if finding.subject == "box"] == []


def test_a_library_alone_is_audited(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Registry("engine", "sublight.no_such_group", {"box": f"{__name__}:BOX"})
    monkeypatch.setattr("sublight.audit.auditor.ENGINES", engines)
    assert [engine.name for engine in audited(door(environment)).engines] == ["box"]


def test_flashinfer_is_one() -> None:
    assert FLASHINFER.library is True
