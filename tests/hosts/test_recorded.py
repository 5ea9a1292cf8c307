"""A recording answers as the machine did, and says what it was never asked."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.errors import RecordError
from sublight.hosts.base import Completed
from sublight.hosts.recorded import NOT_IN_THE_SNAPSHOT, RecordedHost, digest
from sublight.hosts.recorder import RecordingHost
from sublight.hosts.recording import Answer, Recording, answer_of, completed_of


class Parrot:
    """Says what it is told."""

    name = "parrot"

    def __init__(self) -> None:
        self.asked = 0

    def run(self, argv: object, stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        self.asked += 1
        return Completed(tuple(argv), len(stdin), stdin + b"\x00\xff", b"bad", 0.25)  # type: ignore[call-overload]


def replayed(recording: Recording) -> RecordedHost:
    """After a way through a file."""
    return RecordedHost(msgspec.json.decode(msgspec.json.encode(recording), type=Recording))


def test_answers_come_back_byte_for_byte() -> None:
    recorder = RecordingHost(Parrot())
    first = recorder.run(["probe", "--all"], b"code")
    other = recorder.run(["probe", "--all"])
    host = replayed(recorder.recording("bench box"))
    assert host.name == "bench box"
    assert host.run(["probe", "--all"], b"code") == first
    assert host.run(["probe", "--all"]) == other and first != other


def test_what_was_not_asked_is_not_known() -> None:
    host = replayed(RecordingHost(Parrot()).recording())
    done = host.run(["lspci", "-vvv"])
    assert (done.exit_code, done.ok, done.timed_out, done.not_run) == (None, False, False, NOT_IN_THE_SNAPSHOT)
    assert done.failure == "not in the snapshot"


def test_another_input_is_another_question() -> None:
    recorder = RecordingHost(Parrot())
    recorder.run(["python", "-"], b"print(1)")
    assert replayed(recorder.recording()).run(["python", "-"], b"print(2)").not_run == NOT_IN_THE_SNAPSHOT


def test_a_gap_in_a_recording_is_not_recorded_as_an_answer() -> None:
    recorder = RecordingHost(RecordedHost(Recording("old")))
    recorder.run(["lscpu"])
    assert recorder.recording().answers == ()


def test_what_must_not_be_kept_is_not_seen_either() -> None:
    def clean(done: Completed) -> Completed:
        return msgspec.structs.replace(done, stdout=done.stdout.replace(b"SECRET", b"-"))

    recorder = RecordingHost(Parrot(), clean)
    seen = recorder.run(["env"], b"TOKEN=SECRET")
    assert seen.stdout == b"TOKEN=-\x00\xff"
    assert replayed(recorder.recording()).run(["env"], b"TOKEN=SECRET") == seen


def test_a_repeated_question_keeps_its_last_answer() -> None:
    parrot = Parrot()
    recorder = RecordingHost(parrot)
    recorder.run(["date"])
    recorder.run(["date"])
    assert parrot.asked == 2 and len(recorder.recording().answers) == 1


def test_a_time_limit_is_kept() -> None:
    done = Completed(("nvidia-smi",), None, b"half", seconds=30.0)
    back = completed_of(answer_of(done))
    assert back == done and back.timed_out


@given(st.binary(max_size=2000), st.binary(max_size=200), st.one_of(st.none(), st.integers(-64, 255)))
def test_any_answer_survives(stdout: bytes, stderr: bytes, code: int | None) -> None:
    done = Completed(("a", "b"), code, stdout, stderr, 1.5, truncated=bool(code))
    assert completed_of(answer_of(done)) == done


@pytest.mark.parametrize("text", ["no base64!", "AAAA", answer_of(Completed(("x",), 0, b"abc" * 50)).stdout[:-8]])
def test_a_damaged_answer_is_refused(text: str) -> None:
    with pytest.raises(RecordError) as error:
        completed_of(Answer(("lspci", "-vvv"), 0, stdout=text))
    assert error.value.asked == "reading what `lspci -vvv` answered from a recording"


def test_an_answer_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = answer_of(Completed(("x",), 0, b"0" * 5000)).stdout
    monkeypatch.setattr("sublight.hosts.recording.OUTPUT_LIMIT_BYTES", 4000)
    with pytest.raises(RecordError) as error:
        completed_of(Answer(("x",), 0, stdout=bomb))
    assert "larger than any answer" in error.value.found


def test_digest_of_nothing_is_nothing() -> None:
    assert digest(b"") == "" and len(digest(b"x")) == 64
