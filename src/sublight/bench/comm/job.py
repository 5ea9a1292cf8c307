"""What the processes are told, and what the first of them says back. No torch."""

import msgspec

from sublight.bench.record.comm import Message
from sublight.bench.record.measurement import Environment


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """One operation and payload, for the rows that send it: row -> calls a step."""

    operation: str
    payload_bytes: int
    rows: dict[str, int]


class CommJob(msgspec.Struct, frozen=True, kw_only=True):
    sends: tuple[Send, ...]
    device: str
    seed: int
    rounds: int


class CommDone(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    topology: str
    messages: tuple[Message, ...]


class CommFailed(msgspec.Struct, frozen=True, kw_only=True):
    asked: str
    found: str
    hint: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One of both."""

    done: CommDone | None = None
    failed: CommFailed | None = None
