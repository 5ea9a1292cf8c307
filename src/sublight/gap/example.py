"""The case that `sublight gap` shows without arguments: a real campaign, its measurement and its claims, as data."""

from pathlib import Path

import msgspec

_FOLDER = Path(__file__).parent.parent / "facts" / "catalogue" / "examples"
_FILE = "glm-5-campaign.toml"
# Where the measured steps of the case stand, as a reader is told.
MEASURED_IN = f"bundled {_FILE}"


class Traced(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same model with a trace of one rank; `trace` is a file beside the example."""

    title: str
    gpus: str
    bandwidth: str
    context: int
    measured: str
    trace: str
    source: str

    @property
    def path(self) -> Path:
        return _FOLDER / self.trace


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measured step with what was said of it; the fields are those of the command line."""

    title: str
    model: str
    gpus: str
    context: int
    measured: str
    claimed_floor: str
    claimed_parts: tuple[str, ...]
    source: str
    traced: Traced


def bundled_example() -> Example:
    return msgspec.toml.decode((_FOLDER / _FILE).read_bytes(), type=Example)
