"""A machine that was asked before: answers come from a recording, and nothing is run."""

from collections.abc import Sequence
from hashlib import sha256

from sublight.hosts.base import Completed
from sublight.hosts.recording import Answer, Recording, completed_of

NOT_IN_THE_SNAPSHOT = "not in the snapshot"


class RecordedHost:
    """Replays a recording. A command that was not recorded is answered by a Completed that was not run."""

    def __init__(self, recording: Recording) -> None:
        self.name = recording.name
        self._answers: dict[tuple[tuple[str, ...], str], Answer] = {
            (answer.argv, answer.stdin_sha256): answer for answer in recording.answers
        }

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:  # noqa: ARG002
        answer = self._answers.get((tuple(argv), digest(stdin)))
        if answer is None:
            return Completed(tuple(argv), None, not_run=NOT_IN_THE_SNAPSHOT)
        return completed_of(answer)


def digest(stdin: bytes) -> str:
    """How a command's input is told apart in a recording; the input itself is not kept."""
    return sha256(stdin).hexdigest() if stdin else ""
