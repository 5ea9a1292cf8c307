"""What others measured that a gap can be set beside: times of single kernels, and what a launch costs."""

from pathlib import Path

import msgspec

from sublight.records import Evidence, Figure
from sublight.rows import ROWS, Group

_FOLDER = Path(__file__).parent / "catalogue" / "published"


class PublishedKernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kernel's time per call.

    It covers all of `rows` together, or `each` of them. It was timed with weights in one of `formats`, and says nothing
    of a row that is stored otherwise; messages have none.
    """

    rows: tuple[str, ...]
    us: float
    note: str
    formats: tuple[str, ...] = ()
    each: bool = False

    def __post_init__(self) -> None:
        messages = [ROWS[id_].group is Group.COLLECTIVES for id_ in self.rows]
        if any(messages) != all(messages) or bool(self.formats) == any(messages):
            raise ValueError(
                f"{self.rows}: rows of weights need the formats they were timed in, and messages have none"
            )


class PublishedKernels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kernels of one rank of one model on one card, measured elsewhere, and the sizes they were timed at."""

    model_type: str
    hidden: int
    experts: int
    expert_width: int
    gpu: str
    also_for: tuple[str, ...]
    tp: int
    batch: int
    source: str
    note: str
    kernel: tuple[PublishedKernel, ...]


class _Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    evidence: Evidence
    us_low: float = 0.0
    us_high: float = 0.0
    factor: float = 1.0


class LaunchCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds a launch adds, low and high, by how it is made."""

    eager: _Cost
    graph_node: _Cost
    staged_collective: _Cost

    def eager_s(self) -> tuple[Figure, Figure]:
        return _span(self.eager)

    def graph_node_s(self) -> tuple[Figure, Figure]:
        return _span(self.graph_node)


def _span(cost: _Cost) -> tuple[Figure, Figure]:
    return (
        Figure(cost.us_low * 1e-6, cost.evidence, cost.source),
        Figure(cost.us_high * 1e-6, cost.evidence, cost.source),
    )


def published_kernels(gpu: str, tp: int, batch: int, **model: str | int) -> PublishedKernels | None:
    """Kernel times published for exactly this card (or a sibling the file names), layout, batch and model sizes.

    Args:
        model: model_type, hidden, experts and expert_width of the model.
    """
    for path in sorted(_FOLDER.glob("kernels-*.toml")):
        found = msgspec.toml.decode(path.read_bytes(), type=PublishedKernels)
        fits = (found.tp, found.batch) == (tp, batch) and (gpu == found.gpu or gpu in found.also_for)
        if fits and all(getattr(found, key) == value for key, value in model.items()):
            return found
    return None


def launch_costs() -> LaunchCosts:
    """What a launch costs, from the catalogue."""
    return msgspec.toml.decode((_FOLDER / "launches.toml").read_bytes(), type=LaunchCosts)
