"""Interpreters as people have them: talkative, slow, hanging, dying halfway, wrapped, or in a container."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sublight.audit.auditor import Auditor, Options
from sublight.audit.cache import Cache
from sublight.audit.doors import InterpreterDoor, Request
from sublight.audit.ladder import Answer, Rung
from sublight.audit.probe.interpreter import files
from sublight.audit.question import ask, card
from sublight.audit.reading import DiskReader, DoorReader
from sublight.audit.record import Audit
from sublight.audit.replies import Reply
from sublight.audit.snapshot import KeepingDoor
from sublight.audit.summary import audit
from sublight.errors import HostError
from sublight.facts.workload import Layout
from sublight.hosts.base import Completed
from sublight.hosts.local import LocalHost
from sublight.registry import Registry
from tests.audit.machines import Environment
from tests.audit.tiny import SOURCE


@pytest.fixture(autouse=True)
def _one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Registry("engine", "sublight.no_such_group", {"tiny": "tests.audit.tiny:TINY"})
    monkeypatch.setattr("sublight.audit.auditor.ENGINES", engines)


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    env = Environment(tmp_path / "env")
    env.install("tiny-engine", "2.0", {"tiny/__init__.py": "", "tiny/backends.py": SOURCE}, ["some-kernels==1.4"])
    kernels = {"kernels/__init__.py": "", "kernels/sturdy.py": "def run(): ...\n", "kernels/deadly.py": "1 / 0\n"}
    env.install("some-kernels", "1.4", kernels)
    return env


def door(python: str) -> InterpreterDoor:
    return InterpreterDoor(LocalHost(), python, here=True)


def audited(python: str, **options: object) -> Audit:
    question = ask("glm-5-nvfp4", card("rtx-pro-6000-server", None), Layout(tp=8))
    return audit(Auditor(door(python), Options(**options), Cache(None)), question)  # type: ignore[arg-type]


def steps(made: Audit, rung: Rung) -> dict[str, Answer]:
    ladders = made.engines[0].ladders
    return {ladder.name: step.answer for ladder in ladders for step in ladder.steps if step.rung is rung}


BANNER = "import sys\nprint('WELCOME =====', flush=True)\nprint('a warning', file=sys.stderr, flush=True)\n"


def test_a_talkative_and_slow_one_answers_as_any_other(env: Environment) -> None:
    quiet = audited(env.python)
    env.write(
        {"sitecustomize.py": f"{BANNER}import atexit, time\ntime.sleep(0.4)\natexit.register(print, 'GOODBYE')\n"}
    )
    loud = audited(env.python)
    assert [ladder.steps for ladder in loud.engines[0].ladders] == [ladder.steps for ladder in quiet.engines[0].ladders]


def test_one_that_hangs_is_given_up_with_what_it_started(env: Environment, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    env.write({"sitecustomize.py": text})
    started = time.monotonic()
    with pytest.raises(HostError) as caught:
        door(env.python).ask({"packages": {"names": []}}, timeout_s=2.0)
    assert time.monotonic() - started < 10
    assert caught.value.found == f"{env.python} did not end within 2 s"
    assert caught.value.hint.startswith(f"{env.python} -c 'print(1)', which has to work there; ")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize(
    ("death", "said"),
    [
        ("os.kill(os.getpid(), 11)", "was ended by SIGSEGV"),
        ("os._exit(3)", "left with exit code 3"),
        ("raise SystemExit('out of licences')", "out of licences"),
    ],
)
def test_one_that_dies_halfway_leaves_what_it_told(env: Environment, tmp_path: Path, death: str, said: str) -> None:
    """It answers what is installed, and no question after that."""
    count = tmp_path / "count"
    env.write(
        {
            "sitecustomize.py": f"import os, sys\nif sys.argv[0] == '-':\n    open({str(count)!r}, 'a').write('x')\n"
            f"    if os.path.getsize({str(count)!r}) > 1:\n        {death}\n"
        }
    )
    made = audited(env.python, imports=False)
    assert made.engines[0].version == "2.0"
    assert steps(made, Rung.DECLARED)["sturdy"] is Answer.PASS
    assert steps(made, Rung.REACHABLE)["sturdy"] is Answer.PASS
    assert steps(made, Rung.CAPABLE)["sturdy"] is Answer.NOT_KNOWN
    (lost,) = [finding for finding in made.findings if finding.subject == "interpreter"]
    assert lost.level == "error"
    assert lost.text.startswith("the interpreter answered before, and does not any more: ")
    assert said in lost.text
    assert lost.text.endswith("; what was not told by then is not known")


class KilledHost:
    """Its programs are ended by a machine that is out of memory."""

    name = "this machine"

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        return Completed(tuple(argv), -9)


class KilledImports(InterpreterDoor):
    def ask(self, request: Request, timeout_s: float = 120.0) -> Reply:
        self._host = KilledHost() if "import" in request else LocalHost()
        return super().ask(request, timeout_s)


def test_imports_that_fail_as_a_whole_take_nothing_else_along(env: Environment) -> None:
    question = ask("glm-5-nvfp4", card("rtx-pro-6000-server", None), Layout(tp=8))
    auditor = Auditor(KilledImports(LocalHost(), env.python, here=True), Options(), Cache(None))
    made = audit(auditor, question)
    assert steps(made, Rung.IMPORTABLE)["sturdy"] is Answer.NOT_KNOWN
    assert steps(made, Rung.INSTALLED)["sturdy"] is Answer.PASS
    assert not [finding for finding in made.findings if finding.subject == "interpreter"]
    assert auditor.trouble.endswith("was ended by SIGKILL")


def test_a_wrapper_is_an_interpreter_like_any_other(env: Environment, tmp_path: Path) -> None:
    """What `conda run` or a module system does: variables first, a greeting, then Python."""
    wrapper = tmp_path / "python-of-the-cluster"
    wrapper.write_text(f'#!/bin/sh\necho "Loading module cuda/13"\nexec {env.python} "$@"\n')
    wrapper.chmod(0o755)
    assert steps(audited(str(wrapper)), Rung.IMPORTABLE) == steps(audited(env.python), Rung.IMPORTABLE)


def test_paths_of_a_container_are_not_read_here(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its "/" is another one, so every file comes through the interpreter, and no kernel is called from here."""
    here = Auditor(door(env.python), Options(tries=True), Cache(None))
    assert isinstance(here.sources().reader, DiskReader)
    assert here.trying is not None
    env.write(
        {
            "sitecustomize.py": "import os\nreal = os.stat\n"
            "os.stat = lambda path, *a, **k: real('/tmp' if path == '/' else path, *a, **k)\n"
        }
    )
    for keep in (False, True):
        inside = door(env.python)
        there = Auditor(KeepingDoor(inside) if keep else inside, Options(tries=True), Cache(None))
        reader = there.sources().reader
        assert isinstance(reader, DoorReader)
        assert reader.read(f"{env.folder}/tiny/backends.py") == SOURCE.encode()
        assert there.trying is None
        assert there.not_tried.endswith("the engine is on another machine or in a container")
    made = audited(env.python)
    assert steps(made, Rung.IMPORTABLE)["sturdy"] is Answer.PASS


def test_the_tree_of_files_is_the_same_for_every_process_of_it() -> None:
    done = LocalHost().run([sys.executable, "-c", "from sublight.audit.probe.interpreter import files\nprint(files())"])
    assert done.text.strip() == files()
