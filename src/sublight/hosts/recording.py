"""What a machine answered, as data: a part of a record, so that another machine can be asked the same later.

Outputs are compressed and written as base64 text: a record stays JSON, and `nvidia-smi -q` of eight cards is a line
instead of two thousand.
"""

import base64
import binascii
import zlib

import msgspec

from sublight.errors import RecordError
from sublight.hosts.base import OUTPUT_LIMIT_BYTES, Completed


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One command and what came of it; `stdin_sha256` is "" where it was given no input."""

    argv: tuple[str, ...]
    exit_code: int | None
    stdin_sha256: str = ""
    stdout: str = ""  # base64 of zlib
    stderr: str = ""
    seconds: float = 0.0
    truncated: bool = False


class Recording(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything a machine was asked. `name` is what the reader calls the machine; nothing else identifies it."""

    name: str
    answers: tuple[Answer, ...] = ()


def answer_of(done: Completed, stdin_sha256: str = "") -> Answer:
    return Answer(
        done.argv,
        done.exit_code,
        stdin_sha256,
        _packed(done.stdout),
        _packed(done.stderr),
        done.seconds,
        done.truncated,
    )


def completed_of(answer: Answer) -> Completed:
    """The answer as it was given. Raises RecordError when its text was damaged."""
    return Completed(
        answer.argv,
        answer.exit_code,
        _unpacked(answer.stdout, answer.argv),
        _unpacked(answer.stderr, answer.argv),
        answer.seconds,
        answer.truncated,
    )


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode() if data else ""


def _unpacked(text: str, argv: tuple[str, ...]) -> bytes:
    if not text:
        return b""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(text, validate=True), OUTPUT_LIMIT_BYTES)
        whole = unpacker.eof
    except (binascii.Error, zlib.error, ValueError) as error:
        raise _damaged(argv, str(error)) from None
    if not whole:
        raise _damaged(argv, "it is cut short, or larger than any answer")
    return data


def _damaged(argv: tuple[str, ...], why: str) -> RecordError:
    asked = f"reading what `{' '.join(argv)}` answered from a recording"
    return RecordError(asked, f"its text is damaged ({why})", "a file as --save wrote it")
