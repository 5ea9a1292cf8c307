"""Check and Knob: a check reads, and says of each of its knobs what was found; what a knob is about is said once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sublight.records import Evidence, Figure, not_known
from sublight.tuning.machine import MachineFacts
from sublight.tuning.readings import Readings
from sublight.tuning.record import Cost, Finding, Gain, Reach, Verdict
from sublight.tuning.sources import SOURCES

# Where measurements and rules come from. What a line says of decoding was measured on 8 RTX PRO 6000 unless it says so.
RTX6K = "github.com/voipmonitor/rtx6kpro"
NCCL_DOCS = "docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
KERNEL_DOCS = "docs.kernel.org"
NVIDIA_SMI = "docs.nvidia.com/deploy/nvidia-smi"


@dataclass(frozen=True)
class Knob:
    """One thing that can be set: what is recommended, why, by whom, and what the wrong setting can cost."""

    name: str
    recommended: str
    why: str
    source: str
    evidence: Gain
    cost: Cost

    def found(
        self,
        verdict: Verdict,
        found: str,
        *read_from: str,
        recommended: str = "",
        why: str = "",
        contradictions: tuple[str, ...] = (),
        command: str = "",
        cost: Cost | None = None,
    ) -> Finding:
        """What was found of it. `why` is added to the knob's own reason."""
        return Finding(
            knob=self.name,
            verdict=verdict,
            found=found,
            recommended=recommended or self.recommended,
            read_from=tuple(place for place in read_from if place),
            why=f"{self.why}. {why}" if why else self.why,
            source=self.source,
            evidence=self.evidence,
            cost=cost or self.cost,
            contradictions=contradictions,
            command=command,
        )

    def unread(self, readings: Readings, *sources: str, reason: str = "") -> Finding:
        """Nothing was read: why, and the command of the first source to run."""
        return self.found(
            Verdict.NOT_KNOWN,
            reason or readings.missing(*sources) or "the output does not say",
            command=SOURCES[sources[0]].command if sources else "",
        )


@dataclass(frozen=True)
class Check:
    """A family of knobs.

    Attributes:
        needs: names of the sources it reads; every one of them is a command that only reads.
        judge: what is found, from the readings and the facts made of them. It runs nothing.
    """

    name: str
    needs: tuple[str, ...]
    judge: Callable[[Readings, MachineFacts], Iterator[Finding]]


def costs(reach: Reach, value: float, unit: str, source: str, note: str = "") -> Cost:
    """A cost that somebody measured and published."""
    return Cost(reach, Figure(value, Evidence.PUBLISHED, source, note), unit)


def unmeasured(reach: Reach, reason: str) -> Cost:
    """A cost without a number."""
    return Cost(reach, not_known(reason))


def several(indices: list[int], of: int) -> str:
    """Which cards: "all 8 GPUs", "GPU 3 of 8", "GPUs 0, 2, 5 of 8"; "GPU 6" where not all were listed."""
    if len(indices) == of:
        return f"all {of} GPUs" if of > 1 else "the GPU"
    listed = ", ".join(map(str, indices))
    total = f" of {of}" if max(indices, default=0) < of else ""
    return f"GPU {listed}{total}" if len(indices) == 1 else f"GPUs {listed}{total}"
