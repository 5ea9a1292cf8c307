"""A machine's answers kept, so that it can be audited again without it: for another card, model or layout.

They are stored in the form of `hosts.recording`, one entry for each thing asked (a file, a folder's names, a symbol).
An audit that asks for other things than the one that was saved gets what there is; the rest is "not in the snapshot".
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sublight.audit.doors import Door, Request, read_here, read_in_parts
from sublight.audit.replies import FileTold, Reply, Told
from sublight.errors import HostError
from sublight.hosts.base import Completed
from sublight.hosts.recorded import NOT_IN_THE_SNAPSHOT
from sublight.hosts.recording import Answer, Recording, answer_of, completed_of

_PROGRAM = "sublight-probe"  # stands where a command's name stands in a recording
_ITEMS = {"read": "paths", "names": "folders", "objects": "roots", "import": "symbols", "packages": "names"}
_ABSENT = b"null"


class KeepingDoor:
    """Asks another door and keeps what it answered. `keep` adds what was read without asking."""

    def __init__(self, door: Door) -> None:
        self.name = door.name
        self.key = door.key
        self.reads_here = door.reads_here
        self.live = door.live
        self.python = door.python
        self._door = door
        self._kept: dict[tuple[str, str], bytes] = {}
        self._folders: set[str] = set()  # of which every Python file is kept

    @property
    def lost(self) -> str:
        return self._door.lost

    def ask(self, request: Request, timeout_s: float = 120.0) -> Reply:
        reply = self._door.ask(request, timeout_s)
        for question, told in reply.items():
            if told.answer:
                self._keep(question, request[question], bytes(told.answer))
            else:
                self._kept[question, "error"] = msgspec.json.encode(told.error)
        return reply

    def keep_files(self, paths: Iterable[str], folders: Iterable[str], names: Iterable[str] = ()) -> None:
        """Files, every Python file below some folders, and what folders hold; what is kept is not asked for again.

        Of a machine that was lost meanwhile, nothing more.
        """
        missing = [path for path in paths if ("read", path) not in self._kept]
        for _ in read_in_parts(lambda arguments: self._also("read", arguments), missing, set(folders) - self._folders):
            pass
        listed = sorted(name for name in names if ("names", name) not in self._kept)
        if listed:
            self._also("names", {"folders": listed})

    def _also(self, question: str, arguments: dict[str, Any]) -> Told:
        if not self.reads_here:
            try:
                return self.ask({question: arguments})[question]
            except HostError:
                if self.lost:
                    return Told(error=self.lost)
                raise
        told = read_here(question, arguments)
        self._keep(question, arguments, bytes(told.answer or b"{}"))
        return told

    def _keep(self, question: str, arguments: Mapping[str, Any], answer: bytes) -> None:
        if question not in _ITEMS:
            self._kept[question, ""] = answer
            return
        items = msgspec.json.decode(answer, type=dict[str, msgspec.Raw])
        later: set[str] = set()
        if question == "read":
            self._folders |= set(arguments.get("folders", ()))
            later = {item for item, value in items.items() if _is_for_later(value)}
        for item in arguments[_ITEMS[question]]:
            if item not in later:
                self._kept.setdefault((question, item), _ABSENT)
        for item, value in items.items():
            if item not in later:
                self._kept[question, item] = bytes(value)

    def recording(self) -> Recording:
        answers = [
            answer_of(Completed((_PROGRAM, question, item), 0, stdout=data))
            for (question, item), data in self._kept.items()
            if question != "status"
        ]
        return Recording(self.name, tuple(answers))


def _is_for_later(value: msgspec.Raw) -> bool:
    return msgspec.json.decode(value, type=FileTold).later


class SnapshotDoor:
    """Answers from a recording. `lacking` collects what was asked for and is not in it."""

    reads_here = False
    live = False
    python = ""
    lost = ""

    def __init__(self, recording: Recording) -> None:
        self.name = self.key = recording.name
        self.lacking: set[str] = set()
        self._answers: dict[tuple[str, str], Answer] = {
            (answer.argv[1], answer.argv[2]): answer
            for answer in recording.answers
            if len(answer.argv) == 3 and answer.argv[0] == _PROGRAM
        }

    @property
    def empty(self) -> bool:
        """Whether there is nothing of an audit in it."""
        return not self._answers

    def ask(self, request: Request, timeout_s: float = 120.0) -> Reply:  # noqa: ARG002
        return {question: self._told(question, arguments) for question, arguments in request.items()}

    def _told(self, question: str, arguments: Mapping[str, Any]) -> Told:
        if question in _ITEMS:
            items = {item: self._found(question, item) for item in arguments[_ITEMS[question]]}
            found = {item: msgspec.Raw(data) for item, data in items.items() if data is not None and data != _ABSENT}
            return Told(msgspec.Raw(msgspec.json.encode(found)))
        data = self._found(question, "")
        if data is not None:
            return Told(msgspec.Raw(data))
        error = self._found(question, "error")
        return Told(error=NOT_IN_THE_SNAPSHOT if error is None else msgspec.json.decode(error, type=str))

    def _found(self, question: str, item: str) -> bytes | None:
        answer = self._answers.get((question, item))
        if answer is None:
            if item != "error":
                self.lacking.add(f"{question} {item}".strip())
            return None
        return completed_of(answer).stdout

    def everything(self, question: str) -> list[str]:
        """Every item of a question that the snapshot holds."""
        return [item for asked, item in self._answers if asked == question]
