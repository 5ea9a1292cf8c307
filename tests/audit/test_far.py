"""The audit through ssh, against a real sshd on loopback: the same answers as on the machine itself."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from sublight.audit.auditor import Auditor, Options
from sublight.audit.cache import Cache
from sublight.audit.doors import InterpreterDoor, Request
from sublight.audit.ladder import Answer
from sublight.audit.question import ask, card
from sublight.audit.reading import DoorReader
from sublight.audit.record import Audit
from sublight.audit.replies import Reply
from sublight.audit.snapshot import KeepingDoor
from sublight.audit.summary import audit, audit_symbols
from sublight.errors import HostError
from sublight.facts.workload import Layout
from sublight.hosts.base import Completed
from sublight.hosts.local import LocalHost
from sublight.hosts.ssh import SshHost
from sublight.registry import Registry
from tests.audit.machines import Environment
from tests.audit.tiny import SOURCE, Tiny
from tests.hosts import sshd


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    folder = tmp_path_factory.mktemp("sshd")
    (folder / "banner").write_text("AUTHORISED USERS ONLY\n")
    running = sshd.start(folder, f"Banner {folder / 'banner'}")
    with SshHost(running.destination, running.options) as opened:
        yield opened
    running.stop()


@pytest.fixture(autouse=True)
def _one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Registry("engine", "sublight.no_such_group", {"tiny": "tests.audit.tiny:TINY"})
    monkeypatch.setattr("sublight.audit.auditor.ENGINES", engines)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    env = Environment(tmp_path / "env")
    env.install("tiny-engine", "2.0", {"tiny/__init__.py": "", "tiny/backends.py": SOURCE}, ["some-kernels==1.4"])
    kernels = {"kernels/__init__.py": "", "kernels/sturdy.py": "def run(): ...\n", "kernels/deadly.py": "1 / 0\n"}
    env.install("some-kernels", "1.4", kernels)
    return env


def test_the_same_answers_from_afar(host: SshHost, environment: Environment, tmp_path: Path) -> None:
    question = ask("glm-5-nvfp4", card("rtx-pro-6000-server", None), Layout(tp=8))
    here = audit(Auditor(InterpreterDoor(LocalHost(), environment.python, True), Options(), Cache(None)), question)
    far = InterpreterDoor(host, environment.python, False)
    there = audit(Auditor(far, Options(), Cache(tmp_path / "cache")), question)
    assert there.machine.name == f"{environment.python} on a host over ssh"  # its address and user are not kept
    answers = [[step.answer for step in ladder.steps] for ladder in there.engines[0].ladders]
    assert answers == [[step.answer for step in ladder.steps] for ladder in here.engines[0].ladders]
    warm = Cache(tmp_path / "cache")
    assert audit(Auditor(far, Options(), warm), question).engines == there.engines
    environment.write({"tiny/backends.py": SOURCE.replace('"picky"', '"fussy"')})
    changed = audit(Auditor(far, Options(), Cache(tmp_path / "cache")), question)
    assert [ladder.name for ladder in changed.engines[0].ladders][1] == "fussy"


class Asked:
    """A door that keeps what it was asked for."""

    def __init__(self, door: InterpreterDoor) -> None:
        self.requests: list[Request] = []
        self._ask = door.ask
        door.ask = self  # type: ignore[method-assign, assignment]

    def __call__(self, request: Request, timeout_s: float = 120.0) -> Reply:
        self.requests.append(request)
        return self._ask(request, timeout_s)

    def read(self) -> list[str]:
        """Files, by their last two parts, that were asked for."""
        asked = [request["read"] for request in self.requests if "read" in request]
        return ["/".join(path.split("/")[-2:]) for one in asked for path in [*one["paths"], *one.get("folders", ())]]

    def questions(self) -> list[str]:
        return ["+".join(request) for request in self.requests]


def test_another_question_fetches_no_file_again(environment: Environment, tmp_path: Path) -> None:
    """What came of a machine's files serves every later run, as long as size and time of change are the same."""
    environment.write({"kernels/more.py": "def run(): ...\n"})

    def run(gpu: str) -> tuple[Asked, Audit]:
        far = InterpreterDoor(LocalHost(), environment.python, False)
        asked = Asked(far)
        question = ask("glm-5-nvfp4", card(gpu, None), Layout(tp=8))
        return asked, audit(Auditor(far, Options(imports=False), Cache(tmp_path / "cache")), question)

    first, _ = run("rtx-pro-6000-server")
    assert "tiny/backends.py" in first.read() or "site-packages/tiny" in first.read()
    again, made = run("b200")
    assert again.read() == []
    # "sturdy" is refused on sm_100, and "picky" let through, though no code is there to prove it.
    assert [ladder.steps[4].answer for ladder in made.engines[0].ladders[:2]] == [Answer.FAIL, Answer.NOT_KNOWN]
    environment.write({"tiny/backends.py": SOURCE.replace('"picky"', '"fussy"')})
    third, made = run("h200")
    assert third.read() == ["tiny/backends.py"]
    assert made.engines[0].ladders[1].name == "fussy"


def test_a_saved_machine_is_read_once(environment: Environment) -> None:
    """What was read for the answers is not asked for again to be kept."""
    far = InterpreterDoor(LocalHost(), environment.python, False)
    asked = Asked(far)
    question = ask("glm-5-nvfp4", card("b200", None), Layout(tp=8))
    made = audit(Auditor(KeepingDoor(far), Options(imports=False), Cache(None)), question)
    assert made.recording is not None
    asked_for = [request["read"] for request in asked.requests if "read" in request]
    read = [path for one in asked_for for path in [*one["paths"], *one.get("folders", ())]]
    assert sorted(read) == sorted(set(read))
    assert f"{environment.folder}/tiny" in read  # the folder as a whole, the first time


class Named(LocalHost):
    def __init__(self, name: str) -> None:
        self.name = name


def test_two_machines_known_by_address_keep_apart(environment: Environment, tmp_path: Path) -> None:
    """A record calls both "a host over ssh"; what is kept of one is not taken for the other."""
    for address in ("root@192.0.2.7", "root@192.0.2.8"):
        far = InterpreterDoor(Named(address), environment.python, False)
        asked = Asked(far)
        question = ask("glm-5-nvfp4", card("b200", None), Layout(tp=8))
        made = audit(Auditor(far, Options(), Cache(tmp_path / "cache")), question)
        assert made.machine.name == f"{environment.python} on a host over ssh"
        assert asked.requests[0]["distributions"] == {"known": ""}
        assert "192.0.2" not in "".join(path.read_text() for path in (tmp_path / "cache").iterdir())


def test_engines_share_what_was_read_from_afar(environment: Environment) -> None:
    far = InterpreterDoor(LocalHost(), environment.python, False)
    asked = Asked(far)
    auditor = Auditor(far, Options(), Cache(None))
    path = f"{environment.folder}/tiny/backends.py"
    one, two = auditor.sources().reader, auditor.sources().reader
    assert one.read(path) == two.read(path) == SOURCE.encode()
    assert asked.questions()[1:] == ["names", "read"]
    assert (one.files, two.files) == ({path}, {path})
    one.read(f"{environment.folder}/tiny/__init__.py")
    assert two.files == {path}  # each knows what it used


def test_imports_that_hold_are_told_in_one_question(environment: Environment, tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(5)]
    environment.write({f"kernels/{name}.py": "def run(): ...\n" for name in names})
    symbols = [f"kernels.{name}.run" for name in names]

    def run() -> tuple[list[str], int]:
        far = InterpreterDoor(LocalHost(), environment.python, False)
        asked = Asked(far)
        auditor = Auditor(far, Options(), Cache(tmp_path / "cache"))
        before = len(asked.requests)
        auditor.importing(symbols)
        return asked.questions()[before:], auditor.fresh

    assert run() == (["import"], 5)
    assert run() == (["status"], 0)
    environment.write({"kernels/m3.py": "def run(): return 3\n"})
    assert run() == (["status", "import"], 1)


class TwoAreas(Tiny):
    areas = ("moe", "attention")


TWO_AREAS = TwoAreas()


def test_a_far_engine_is_read_in_one_process(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would need questions of its own, and what it was told would be lost with it."""
    engines = Registry("engine", "sublight.no_such_group", {"tiny": "tests.audit.test_far:TWO_AREAS"})
    monkeypatch.setattr("sublight.audit.auditor.ENGINES", engines)
    forked: list[object] = []

    @contextmanager
    def beside(work: Callable[[], object], answer_type: object) -> Iterator[Callable[[], object]]:
        forked.append(answer_type)
        yield work

    monkeypatch.setattr("sublight.audit.routes.beside", beside)
    question = ask("glm-5-nvfp4", card("rtx-pro-6000-server", None), Layout(tp=8))
    for here, processes in ((True, 1), (False, 0)):
        forked.clear()
        door = InterpreterDoor(LocalHost(), environment.python, here)
        made = audit(Auditor(door, Options(imports=False), Cache(None)), question)
        assert {ladder.area for ladder in made.engines[0].ladders} == {"moe", "attention"}
        assert len(forked) == processes


def test_files_come_a_folder_at_a_time(host: SshHost, tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"m{number}.py").write_text(f"X = {number}\n")
    reader = DoorReader(InterpreterDoor(host, sys.executable, False))
    asked = []
    ask_door = reader.door.ask
    reader.door.ask = lambda request, timeout_s=120.0: asked.append(request) or ask_door(request, timeout_s)  # type: ignore[method-assign]
    assert [reader.read(f"{tmp_path}/m{number}.py") for number in range(20)] == [
        f"X = {number}\n".encode() for number in range(20)
    ]
    assert reader.read(f"{tmp_path}/absent.py") is None
    assert [list(request) for request in asked] == [["names"], ["read"]]


def test_a_package_takes_a_bounded_number_of_questions(host: SshHost, tmp_path: Path) -> None:
    """Six hundred modules in sixty folders, read one by one."""
    for folder in range(60):
        place = tmp_path / "engine" / f"p{folder}"
        place.mkdir(parents=True)
        for number in range(10):
            (place / f"m{number}.py").write_text(f"X = {folder}, {number}\n")
    (tmp_path / "engine" / "__init__.py").write_text("")
    far = InterpreterDoor(host, sys.executable, False)
    reader, asked, ask_door = DoorReader(far), [], far.ask
    far.ask = lambda request, timeout_s=120.0: asked.append(request) or ask_door(request, timeout_s)  # type: ignore[method-assign]
    reader.names(f"{tmp_path}/engine")
    for folder in range(60):
        for number in range(10):
            assert reader.read(f"{tmp_path}/engine/p{folder}/m{number}.py") == f"X = {folder}, {number}\n".encode()
    assert len(asked) <= 6


def test_an_answer_without_room_is_continued(host: SshHost, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"m{number}.py").write_bytes(b"#" * (7 << 20))
    reader = DoorReader(InterpreterDoor(host, sys.executable, False))
    reader.fetch([str(tmp_path)])
    assert [len(reader.read(f"{tmp_path}/m{number}.py") or b"") for number in range(3)] == [7 << 20] * 3


def test_a_connection_that_is_lost_leaves_what_was_told(environment: Environment, tmp_path: Path) -> None:
    class Leaving(LocalHost):
        left = 2

        def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
            self.left -= 1
            if self.left < 0:
                raise HostError("running a command on box with ssh", "Connection reset by peer", "the same again")
            return super().run(argv, stdin, timeout_s)

    question = ask("glm-5-nvfp4", card("rtx-pro-6000-server", None), Layout(tp=8))
    far = InterpreterDoor(Leaving(), environment.python, False)
    made = audit(Auditor(far, Options(), Cache(tmp_path / "cache")), question)
    assert made.engines[0].version == "2.0"
    lost = next(finding for finding in made.findings if finding.subject == "connection")
    assert lost.level == "error"
    assert "Connection reset by peer" in lost.text
    assert not [step for ladder in made.engines[0].ladders for step in ladder.steps if step.answer is Answer.FAIL]


def test_no_interpreter_there(host: SshHost) -> None:
    with pytest.raises(HostError) as caught:
        Auditor(InterpreterDoor(host, "/no/such/python", False), Options(), Cache(None))
    assert "there is no program /no/such/python" in caught.value.found


def test_a_symbol_from_afar(host: SshHost, environment: Environment) -> None:
    far = InterpreterDoor(host, environment.python, False)
    (found,) = audit_symbols(Auditor(far, Options(), Cache(None), ["kernels"]), ["kernels.deadly.run"]).symbols
    assert "ZeroDivisionError" in found.why
