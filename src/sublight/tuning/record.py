"""HostReport: the record of a look at a machine, and Finding: one knob of it."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

import msgspec

from sublight.hosts.recording import Recording
from sublight.records import Figure, Record, repeated
from sublight.tuning.machine import MachineFacts


class Verdict(StrEnum):
    """What to do about a knob, the most urgent first."""

    CHANGE = "change"  # it is set as others measured a loss, or cannot work
    CHECK = "check"  # this reading does not decide it, or it has a price to weigh
    NOT_KNOWN = "not known"  # nothing was read; the finding says why and what to run
    FINE = "fine"


class Gain(StrEnum):
    """What is known of turning a knob, for decoding on machines like these."""

    MEASURED = "measured gain"  # somebody measured a step, a collective or a transfer with and without it
    PLAUSIBLE = "plausible"  # documentation or mechanism says so; nobody measured it for decoding
    NONE = "no gain shown"  # it was measured and made no difference, or nothing but habit speaks for it


# How far the wrong setting reaches, widest first: the order in which findings are shown.
Reach = Literal["milliseconds a step", "percents of a step", "jitter or start-up", "none shown"]
REACHES: tuple[Reach, ...] = ("milliseconds a step", "percents of a step", "jitter or start-up", "none shown")


class Cost(msgspec.Struct, frozen=True):
    """What the wrong setting costs: how far it reaches, and a number where somebody has one."""

    reach: Reach
    figure: Figure
    unit: str = ""  # what the number counts: "us a message"; "x ..." where it is a factor, "% ..." where it is a share


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One knob.

    Attributes:
        read_from: where it was read: command or file, and line.
        contradictions: what in the machine's own answers does not go together, or what a reading cannot prove.
        command: what to run to know more; "" where nothing is open.
    """

    knob: str
    verdict: Verdict
    found: str
    recommended: str
    read_from: tuple[str, ...]
    why: str
    source: str
    evidence: Gain
    cost: Cost
    contradictions: tuple[str, ...] = ()
    command: str = ""


class HostReport(Record, frozen=True, kw_only=True):
    """A machine's facts and every knob of it, in the order of what each can cost.

    Attributes:
        name: what the reader called the machine.
        how: how it was asked: "local", "ssh", "folder" or "snapshot".
        recording: what it answered, without serial numbers, addresses and variables that are not on a short list;
            the same questions can be asked of it again.
        labels: source -> file, where answers came from files.
        remarks: what to know of the answers as a whole.
    """

    schema = "host"
    version = 1

    name: str
    how: Literal["local", "ssh", "folder", "snapshot"]
    machine: MachineFacts
    findings: tuple[Finding, ...]
    recording: Recording
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def flaws(self) -> Iterator[str]:
        twice = repeated(finding.knob for finding in self.findings)
        if twice:
            yield f"the knob {twice[0]!r} is found twice"
        if list(self.findings) != in_order(self.findings):
            yield "its findings are not in the order of what they can cost"


def in_order(findings: tuple[Finding, ...] | list[Finding]) -> list[Finding]:
    """By what to do, then by how far the wrong setting reaches, then by the strength of the evidence."""
    verdicts, gains = list(Verdict), list(Gain)
    return sorted(
        findings,
        key=lambda f: (verdicts.index(f.verdict), REACHES.index(f.cost.reach), gains.index(f.evidence)),
    )
