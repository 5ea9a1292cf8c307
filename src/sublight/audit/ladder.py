"""The ladder: eight questions about a backend, each with its own answer and proof. No rung stands for another.

declared -> reachable -> installed -> importable -> capable -> executed -> correct -> fast

A backend works here when every rung passes. The first rung that fails is its verdict; rungs above it are answered as
far as they can be, because "not reachable, and would not run either" is worth more than the first half. A question
nobody could answer is "not known" with the reason, and never counts as a pass.

What was read is held against what ran: a "no" below a rung that a trial passed was read by somebody who does not see
everything, and is not known; a log or a trace may be of another installation, so the "no" stays and says so.
"""

from enum import StrEnum

import msgspec


class Rung(StrEnum):
    DECLARED = "declared"
    REACHABLE = "reachable"
    INSTALLED = "installed"
    IMPORTABLE = "importable"
    CAPABLE = "capable"
    EXECUTED = "executed"
    CORRECT = "correct"
    FAST = "fast"


class Answer(StrEnum):
    PASS = "pass"  # noqa: S105 - an answer, no secret
    FAIL = "fail"
    NOT_KNOWN = "not known"


class Proof(msgspec.Struct, frozen=True):
    """Where an answer was read.

    Attributes:
        kind: "source" (a line of code), "distribution" (package metadata), "file" (a shipped object), "command",
            "import", "log", "trace", "trial", "catalogue".
        where: "sglang/srt/layers/moe/utils.py:57", "sgl-kernel 0.3.21", "nvcc --version", "server.log:412".
        text: what stands there, shortened to what proves the answer.
    """

    kind: str
    where: str
    text: str


class Step(msgspec.Struct, frozen=True):
    """One rung of one backend. `why` says in a sentence what was found; `hint` what to try when the answer is no."""

    rung: Rung
    answer: Answer
    why: str
    proofs: tuple[Proof, ...] = ()
    hint: str = ""


def passed(rung: Rung, why: str, *proofs: Proof) -> Step:
    return Step(rung, Answer.PASS, why, proofs)


def failed(rung: Rung, why: str, *proofs: Proof, hint: str) -> Step:
    return Step(rung, Answer.FAIL, why, proofs, hint)


def unknown(rung: Rung, why: str, *proofs: Proof, hint: str = "") -> Step:
    return Step(rung, Answer.NOT_KNOWN, why, proofs, hint)


def contradicted(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps of a backend, each "no" that was read beside the proof that it ran.

    That nobody can ask for a name is no contradiction: the engine may have chosen it by itself.
    """
    ran = next((step for step in steps if step.rung is Rung.EXECUTED and step.answer is Answer.PASS), None)
    if ran is None:
        return steps
    read = (Rung.REACHABLE, Rung.INSTALLED, Rung.IMPORTABLE, Rung.CAPABLE)
    return tuple(_beside(step, ran) if step.rung in read and step.answer is Answer.FAIL else step for step in steps)


def _beside(step: Step, ran: Step) -> Step:
    """A "no" and what contradicts it. One that says so already stays as it is: a record is read more than once."""
    if any(proof.kind == "trial" for proof in ran.proofs):
        why = f"{step.why}, as far as was read; the trial that ran it here contradicts that"
        return msgspec.structs.replace(step, answer=Answer.NOT_KNOWN, why=why, hint="")
    if ran.why in step.why:
        return step
    seen = f"the {ran.proofs[0].kind} ({ran.proofs[0].where})" if ran.proofs else "what was seen running"
    return msgspec.structs.replace(
        step, why=f"{step.why}; {seen} contradicts that, or is of another installation: {ran.why}"
    )


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """One backend of one engine. Its steps do not contradict each other, see `contradicted`.

    Attributes:
        area: what it is a backend of: "moe", "fp4-gemm", "attention", "all-reduce".
        name: as the engine's command line (or its enum, where the command line does not know it) spells it.
        flag: what selects it: "--moe-runner-backend flashinfer_cutlass".
        destination: the kernel that really runs for this target when it is asked for, "" when not known.
        steps: one a rung, in the order of `Rung`.
        beside: what else has to be typed for these answers: the layout and its all-to-all.
        slow: why what runs is slow whatever the card, as far as the engine's source tells.
        alias_of: the name that this one is only another spelling of, "" for one of its own.
    """

    area: str
    name: str
    flag: str
    destination: str = ""
    steps: tuple[Step, ...]
    beside: str = ""
    slow: str = ""
    alias_of: str = ""

    def __post_init__(self) -> None:
        # Records of before this was looked at are read as well.
        msgspec.structs.force_setattr(self, "steps", contradicted(self.steps))

    @property
    def line(self) -> str:
        """All that has to be typed to get what the steps are about; a switch that is no option stands alone."""
        return f"{self.flag} {self.beside}".rstrip() if self.flag.startswith("--") else self.flag

    @property
    def has_run(self) -> bool:
        return any(step.rung is Rung.EXECUTED and step.answer is Answer.PASS for step in self.steps)

    @property
    def verdict(self) -> Step | None:
        """The first rung that fails; None when none does."""
        return next((step for step in self.steps if step.answer is Answer.FAIL), None)
