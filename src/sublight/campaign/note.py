"""Note: a remark or a negative result, kept beside the measurements."""

from typing import Literal

from sublight.errors import UsageError
from sublight.records import Record

Kind = Literal["remark", "negative result"]


class Note(Record, frozen=True, kw_only=True):
    """What somebody wants remembered.

    Attributes:
        text: in their words.
        kind: a remark, or something that was tried and did not help.
        closes: ids of next steps that it answers.
    """

    schema = "note"
    version = 1

    text: str
    kind: Kind = "remark"
    closes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise UsageError("a note", "it is empty", 'sublight note DIR "what was tried, and what came of it"')
