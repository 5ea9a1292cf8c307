"""LogFinding: one thing in a log that deserves a look; Known: what is known beside the log."""

from typing import Literal

import msgspec

from sublight.audit.ladder import Proof
from sublight.facts.gpu import Gpu
from sublight.facts.model import Model
from sublight.facts.workload import Layout


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


class TunedFolder(msgspec.Struct, frozen=True):
    """A folder of tuned kernel configurations of the audited installation.

    Attributes:
        place: as a reader sees it: from the package on; above the folders of Triton's versions, where there are such.
        files: what is in it, as paths from there.
    """

    place: str
    files: tuple[str, ...]


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """Tuned kernel configurations of the audited installation, as far as the lines of a log lead to them.

    Attributes:
        folders: the folder that a line names -> the one that was looked into.
        tables: a file that the log says is used, by name -> what is in it.
        unread: why no folder was looked into, "" where all were.
    """

    folders: dict[str, TunedFolder] = {}
    tables: dict[str, bytes] = {}
    unread: str = "no installation was looked at"


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the log. Everything is optional, and what is absent is said to be unknown, not assumed.

    Attributes:
        model: the checkpoint that the log is of.
        gpu: the card.
        interconnect: what joins the cards, by name; what is usual for the card where it is not given.
        environment: variables the engine was started with.
        read_variables: every variable that the installed engine's source reads.
        tuned: the installation's tuned kernel configurations.
        layout: that was asked for: of a run whose log does not say one.
    """

    model: Model | None = None
    gpu: Gpu | None = None
    interconnect: str | None = None
    environment: dict[str, str] = {}
    read_variables: frozenset[str] = frozenset()
    tuned: Tuned = Tuned()
    layout: Layout | None = None
