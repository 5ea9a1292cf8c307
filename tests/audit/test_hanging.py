"""A package that hangs or crashes when it is imported: one answer and one finding for all its names, and it is kept."""

from functools import partial
from pathlib import Path

import pytest

from sublight.audit.auditor import Auditor, Options
from sublight.audit.cache import Cache
from sublight.audit.doors import InterpreterDoor
from sublight.audit.engines.base import Need, Route
from sublight.audit.gathering import imports_of
from sublight.audit.importable import importable
from sublight.audit.ladder import Answer, Rung
from sublight.audit.question import ask, card
from sublight.audit.record import Audit
from sublight.audit.replies import Imported
from sublight.audit.summary import audit
from sublight.facts.workload import Layout
from sublight.hosts.local import LocalHost
from sublight.registry import Registry
from tests.audit.machines import Environment
from tests.audit.scenes import installation, scene

LIMIT_S = 3
NAMES = ("one", "two", "three")
ROWS = [f'"{name}": ("stuck.{name}.run", [(12, 0)])' for name in NAMES] + ['"fine": ("sound.fine.run", [(12, 0)])']
SOURCE = f"BACKENDS = {{{', '.join(ROWS)}}}\n"


@pytest.fixture(autouse=True)
def _one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Registry("engine", "sublight.no_such_group", {"tiny": "tests.audit.tiny:TINY"})
    monkeypatch.setattr("sublight.audit.auditor.ENGINES", engines)
    monkeypatch.setattr("sublight.audit.auditor.imports_of", partial(imports_of, limit_s=LIMIT_S))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    env = Environment(tmp_path / "env")
    env.install("tiny-engine", "2.0", {"tiny/__init__.py": "", "tiny/backends.py": SOURCE})
    modules = {f"stuck/{name}.py": "def run(): ...\n" for name in NAMES}
    env.install("stuck", "1.4", {"stuck/__init__.py": "import time\ntime.sleep(600)\n", **modules})
    env.install("sound", "1.0", {"sound/__init__.py": "", "sound/fine.py": "def run(): ...\n"})
    return env


def audited(env: Environment, folder: Path) -> Audit:
    through = InterpreterDoor(LocalHost(), env.python, here=True)
    return audit(
        Auditor(through, Options(), Cache(folder / "cache")), ask("glm-5-nvfp4", card("b200", None), Layout(tp=8))
    )


def importable_steps(made: Audit) -> dict[str, tuple[Answer, str]]:
    steps = {ladder.name: ladder.steps[list(Rung).index(Rung.IMPORTABLE)] for ladder in made.engines[0].ladders}
    return {name: (step.answer, step.why) for name, step in steps.items()}


def test_a_hang_is_one_finding_and_the_rest_goes_on(environment: Environment, tmp_path: Path) -> None:
    made = audited(environment, tmp_path)
    said = "found importing stuck did not end within 3 s"
    assert importable_steps(made) == {
        **{name: (Answer.FAIL, f"asked stuck.{name}.run, {said}") for name in NAMES},
        "fine": (Answer.PASS, "imported: sound.fine.run"),
    }
    (found,) = (item for item in made.findings if item.level == "error")
    assert found.subject == "stuck"
    assert found.text == ("its import did not end within 3 s; 3 names behind it, such as stuck.one.run, cannot be had")
    assert found.proofs[-1].where.endswith("stuck/__init__.py:2")
    assert "--no-cache once it is mended" in found.hint


def test_a_hang_is_kept_until_the_package_changes(environment: Environment, tmp_path: Path) -> None:
    first = audited(environment, tmp_path)
    again = audited(environment, tmp_path)
    assert again.timings.imported == 0
    assert importable_steps(again) == importable_steps(first)
    environment.write({"stuck/__init__.py": ""})
    mended = audited(environment, tmp_path)
    assert {answer for answer, _ in importable_steps(mended).values()} == {Answer.PASS}
    assert mended.timings.imported == 3


@pytest.mark.parametrize(
    ("done", "then"),
    [
        (Imported("crash", "importing fast ended the process by SIGSEGV"), False),
        (Imported("hang", "importing fast did not end within 3 s"), False),
        (Imported("error", "SystemExit: 3", type="SystemExit"), False),
        (Imported("error", "RuntimeError: driver too old", type="RuntimeError"), False),
        (Imported("error", "ImportError: libcudart.so.12: no such file", type="ImportError"), True),
        (
            Imported("error", "AttributeError: module 'fast' has no 'run'", type="AttributeError", lacks="fast.run"),
            True,
        ),
    ],
)
def test_what_the_engine_does_then_is_told_of_what_a_guard_sees(tmp_path: Path, done: Imported, then: bool) -> None:
    (tmp_path / "fast.py").write_text("")
    need = Need("fast.run", "engine/moe.py:4", "guarded", on_failure="run is None")
    where = Route(answer=Answer.PASS, why="a branch asks for it", destination="engine.moe.run", needs=(need,))
    step = importable(scene(installation(), tmp_path, imported={"fast.run": done}), where)
    assert step.answer is Answer.FAIL
    assert step.why.endswith("(then: run is None)") is then


def test_what_there_was_no_time_for_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "fast.py").write_text("def run(): ...\n")
    late = Imported("untried", "the 500 s for all imports together were over before")
    where = Route(answer=Answer.PASS, why="", needs=(Need("fast.run", "engine/moe.py:4", "lazy"),))
    step = importable(scene(installation(), tmp_path, imported={"fast.run": late}), where)
    assert step.answer is Answer.NOT_KNOWN
    assert step.why.endswith("importing it was not tried: the 500 s for all imports together were over before")
