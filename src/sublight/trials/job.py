"""What the trying process is told, and what it says back. Both are lines of JSON; no torch."""

import msgspec

from sublight.bench.record.measurement import Agreed, Environment, Measurement
from sublight.kernels.problem import MoeProblem


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One backend at one target.

    Attributes:
        candidate: what is called: a peer of the benchmark, or "module:attribute".
        problem: the layer as one rank holds it; its `tokens` are the most of those that follow.
        tokens: numbers of tokens to compare at; the first is called once before anything else.
        timed: those of them to time at; empty where a time would mean nothing.
        gpu: the catalogue's name of the card that has to be there.
        device: "cuda"; "cpu" is a rehearsal, whose times are none of a GPU.
    """

    candidate: str
    problem: MoeProblem
    tokens: tuple[int, ...]
    timed: tuple[int, ...]
    gpu: str
    device: str = "cuda"
    seed: int = 0


class Began(msgspec.Struct, frozen=True, tag="began"):
    """What is being done now. `backends`: whether it is the backend that is at work, and to blame for what follows."""

    what: str
    backends: bool


class Found(msgspec.Struct, frozen=True, tag="found"):
    environment: Environment


class NotTried(msgspec.Struct, frozen=True, tag="not-tried"):
    """Nothing can be said about the backend: the machine, the interpreter, or the way it is called is in the way."""

    reason: str
    hint: str = ""


class Executed(msgspec.Struct, frozen=True, tag="executed"):
    """A call returned finite values.

    Attributes:
        prepare_s: loading, compiling, bringing the weights into its layout, and the call.
        ran: what was called, with versions, as the adapter says.
    """

    tokens: int
    prepare_s: float
    ran: str = ""


class Broke(msgspec.Struct, frozen=True, tag="broke"):
    """The backend said no, or gave what is no result."""

    reason: str


class Compared(msgspec.Struct, frozen=True, tag="compared"):
    tokens: int
    agreed: Agreed


class Differs(msgspec.Struct, frozen=True, tag="differs"):
    tokens: int
    reason: str


class Timed(msgspec.Struct, frozen=True, tag="timed"):
    """A time of one call.

    Attributes:
        bytes: that it has to move: codes and scales of the experts hit, and the layer's input and output once.
        read_s: one launch that only reads as many, in the same run.
    """

    tokens: int
    bytes: float
    read_s: float
    measurement: Measurement


class NotTimed(msgspec.Struct, frozen=True, tag="not-timed"):
    reason: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    pass


Said = Began | Found | NotTried | Executed | Broke | Compared | Differs | Timed | NotTimed | Done


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the process said, and how it ended.

    Attributes:
        now: what it said last that it was doing; None when it never came so far.
        ended: "" when it came to its end, else why not ("no answer within 300 s", "its process was ended by SIGSEGV").
        hung: whether time was up.
    """

    now: Began | None = None
    environment: Environment | None = None
    not_tried: NotTried | None = None
    executed: Executed | None = None
    broke: str = ""
    compared: tuple[Compared, ...] = ()
    differs: Differs | None = None
    timed: tuple[Timed, ...] = ()
    not_timed: str = ""
    ended: str = ""
    hung: bool = False


def in_words(tokens: int) -> str:
    return f"{tokens} token{'s' * (tokens != 1)}"


def outcome_of(said: list[Said], ended: str, hung: bool) -> Outcome:
    """The last word counts where there is one of a kind."""
    fields: dict[str, object] = {}
    for one in said:
        match one:
            case Began():
                fields["now"] = one
            case Found():
                fields["environment"] = one.environment
            case NotTried():
                fields["not_tried"] = one
            case Executed():
                fields["executed"] = one
            case Broke():
                fields["broke"] = one.reason
            case Differs():
                fields["differs"] = one
            case NotTimed():
                fields["not_timed"] = one.reason
            case Compared() | Timed() | Done():
                pass
    over = any(isinstance(one, Done) for one in said)
    return Outcome(
        **fields,  # type: ignore[arg-type]
        compared=tuple(one for one in said if isinstance(one, Compared)),
        timed=tuple(one for one in said if isinstance(one, Timed)),
        ended="" if over else ended or "its process ended without a word",
        hung=hung and not over,
    )
