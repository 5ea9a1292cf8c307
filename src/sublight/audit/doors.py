"""Doors to the machine that is audited: an interpreter on a host, a folder without one, or a snapshot.

All of them answer the questions of `probe.entry`. Through none of them anything of the engine gets into this process.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from sublight.audit import script
from sublight.audit.probe import distributions, files, objects
from sublight.audit.probe.entry import BEGIN, END
from sublight.audit.replies import FileTold, Reply, Told
from sublight.errors import HostError
from sublight.hosts.base import NOT_EXECUTABLE, NOT_FOUND, Completed, Host
from sublight.hosts.naming import name_kept

Request = Mapping[str, Mapping[str, Any]]
FIRST_S = 30.0
NO_INTERPRETER = "no interpreter was named, only a folder"
_READING = {"read": files.read, "names": files.names, "status": files.status, "objects": objects.describe}


class Door(Protocol):
    """Answers questions.

    Attributes:
        name: for a reader; of a host only what a record may keep.
        key: what tells it from every other, for what is kept of its answers; never shown or saved as it is.
        reads_here: its files are files of this machine.
        live: it can be asked for anything.
        python: the interpreter as it was named, "" where there is none.
        lost: what ended the connection after it had been there; "" as long as it holds.
    """

    name: str
    key: str
    reads_here: bool
    live: bool
    python: str

    @property
    def lost(self) -> str: ...

    def ask(self, request: Request, timeout_s: float = 120.0) -> Reply: ...


class InterpreterDoor:
    """An interpreter on a host, which runs the probe.

    Raises HostError when it does not run, is too old, dies, or says nothing. What it prints besides is cut off. One
    that answered once and then does not, or cannot be reached, is asked nothing more: what it did not say stays
    unknown.

    Args:
        first_s: seconds within which the first answer has to come. It takes a tenth of one, and a few where packages
            lie far away; an interpreter that hangs is not waited for as long as an answer that is worked at.
    """

    def __init__(self, host: Host, python: str, here: bool, first_s: float = FIRST_S) -> None:
        self.name = python if here else f"{python} on {name_kept(host.name)}"
        self.key = python if here else f"{python} on {host.name}"
        self.reads_here = here
        self.live = True
        self.lost = ""
        self._answered = False
        self._first_s = first_s
        self._host = host
        self.python = python

    def ask(self, request: Request, timeout_s: float = 120.0) -> Reply:
        if self.lost:
            raise HostError(f"asking {self.name}", self.lost, "the same again")
        try:
            limit_s = timeout_s if self._answered else min(timeout_s, self._first_s)
            done = self._host.run([self.python, "-"], script.script(request), limit_s)
        except HostError as error:
            self.lost = f"the connection was lost: {error.found}" if self._answered else ""
            raise
        try:
            reply = self._answers(done)
        except HostError as error:
            # What imports do to their process is bounded apart; anything else that fails now would fail again.
            if self._answered and "import" not in request:
                self.lost = f"the interpreter answered before, and does not any more: {error.found}"
            raise
        self._answered = True
        return reply

    def _answers(self, done: Completed) -> Reply:
        asked = f"asking {self.name} what is installed"
        text = done.stdout.decode("utf-8", "replace")
        body = text.rpartition(f"\n{BEGIN}\n")[2].partition(f"\n{END}")
        if BEGIN in text and body[1]:
            try:
                return msgspec.json.decode(body[0].encode(), type=dict[str, Told])
            except (msgspec.DecodeError, UnicodeError) as error:
                raise HostError(asked, f"its answer is damaged ({error})", "the same again") from None
        if done.exit_code == NOT_EXECUTABLE:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            why = f"{self.python} is there and cannot be run as a program" + (f": {said[-1]}" if said else "")
            raise HostError(asked, why, "--python with the path of an interpreter")
        if done.exit_code == NOT_FOUND:
            raise HostError(asked, f"there is no program {self.python}", "--python with the path of an interpreter")
        found = done.failure or "it ended well, but without an answer: is it a Python interpreter?"
        hint = f"{self.python} -c 'print(1)', which has to work there"
        raise HostError(asked, found, hint + ("; if it only is slow, --wait SECONDS" if done.exit_code is None else ""))


class FolderDoor:
    """Folders of installed packages or unpacked wheels; everything that needs an interpreter is not known."""

    reads_here = True
    live = True
    python = ""
    lost = ""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.name = self.key = ", ".join(map(str, folders))
        self._folders = [str(folder.absolute()) for folder in folders]

    def ask(self, request: Request, timeout_s: float = 120.0) -> Reply:  # noqa: ARG002
        return {question: self._told(question, arguments) for question, arguments in request.items()}

    def _told(self, question: str, arguments: Mapping[str, Any]) -> Told:
        if question == "distributions":
            return _told(distributions.describe(self._folders, **arguments))
        if question == "packages":
            return _told({name: place for name in arguments["names"] if (place := self._place(name))})
        if question in _READING:
            return _told(_READING[question](**arguments))  # type: ignore[operator]
        return Told(error=NO_INTERPRETER)

    def _place(self, name: str) -> dict[str, str] | None:
        for folder in self._folders:
            inside = Path(folder, name)
            if inside.is_dir():
                init = inside / "__init__.py"
                return {"folder": folder, "file": str(init) if init.is_file() else ""}
        return None


def read_in_parts(
    ask: Callable[[dict[str, Any]], Told], paths: Iterable[str], folders: Iterable[str] = ()
) -> Iterator[dict[str, FileTold]]:
    """What `ask` says to the question "read", repeated with whatever an answer had no room for."""
    waiting, inside = sorted(paths), sorted(folders)
    while waiting or inside:
        told = ask({"paths": waiting, "folders": inside})
        found = msgspec.json.decode(told.answer, type=dict[str, FileTold]) if told.answer else {}
        yield {path: entry for path, entry in found.items() if not entry.later}
        left = [path for path, entry in found.items() if entry.later]
        if len(left) == len(found):
            return  # nothing came, so nothing more will
        waiting, inside = left, []


def read_here(question: str, arguments: Mapping[str, Any]) -> Told:
    """A question about files of this machine, answered without starting anything."""
    return _told(_READING[question](**arguments))  # type: ignore[operator]


def _told(answer: Any) -> Told:
    return Told(msgspec.Raw(msgspec.json.encode(answer)))
