"""LogFinding: one thing in a log that deserves a look; Known: what is known beside the log."""

from pathlib import Path
from typing import Literal

import msgspec

from sublight.audit.ladder import Proof
from sublight.facts.gpu import Gpu
from sublight.facts.model import Model


class LogFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding.

    Attributes:
        id: stable name of the kind.
        level: "info" explains a line that misleads, or a choice that is right; "warn" may cost time; "error" is
            something that was asked for and did not happen, or did not start.
        subject: what it is about: "experts", "all-reduce", a variable's name.
        text: what was seen and what it means.
        proofs: the lines it stands on.
        advice: what to try or look at; "" where nothing is to be done.
        source: where figures that are not from the log are published.
    """

    id: str
    level: Literal["info", "warn", "error"]
    subject: str
    text: str
    proofs: tuple[Proof, ...] = ()
    advice: str = ""
    source: str = ""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the log. Everything is optional, and what is absent is said to be unknown, not assumed.

    Attributes:
        model: the checkpoint that the log is of.
        gpu: the card.
        interconnect: what joins the cards, by name; what is usual for the card where it is not given.
        environment: variables the engine was started with.
        read_variables: every variable that the installed engine's source reads.
        configs: the folder that the engine looks for tuned kernel configurations in.
    """

    model: Model | None = None
    gpu: Gpu | None = None
    interconnect: str | None = None
    environment: dict[str, str] = {}
    read_variables: frozenset[str] = frozenset()
    configs: Path | None = None
