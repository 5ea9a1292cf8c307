"""A host whose answers are kept, so that they can be saved with what was concluded from them."""

from collections.abc import Callable, Sequence

from sublight.hosts.base import Completed, Host
from sublight.hosts.recorded import digest
from sublight.hosts.recording import Answer, Recording, answer_of


def _as_it_is(done: Completed) -> Completed:
    return done


class RecordingHost:
    """Asks another host and keeps what it answered.

    What is passed on is what is kept, so a recording leads to the same conclusions as the machine did.

    Args:
        host: who is asked.
        clean: takes out of an answer what must not be kept (serial numbers, secrets) before anybody sees it.
    """

    def __init__(self, host: Host, clean: Callable[[Completed], Completed] = _as_it_is) -> None:
        self.name = host.name
        self._host = host
        self._clean = clean
        self._answers: dict[tuple[tuple[str, ...], str], Answer] = {}

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        done = self._clean(self._host.run(argv, stdin, timeout_s))
        if not done.not_run:
            key = (tuple(argv), digest(stdin))
            self._answers[key] = answer_of(done, key[1])
        return done

    def recording(self, name: str = "") -> Recording:
        """Everything answered so far, in the order it was first asked. `name`: what to call the machine."""
        return Recording(name or self.name, tuple(self._answers.values()))
