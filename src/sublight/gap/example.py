"""The case that `sublight gap` shows without arguments: a real campaign, its measurement and its claims, as data."""

from pathlib import Path

import msgspec

_FILE = Path(__file__).parent.parent / "facts" / "catalogue" / "examples" / "glm-5-campaign.toml"


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


def bundled_example() -> Example:
    return msgspec.toml.decode(_FILE.read_bytes(), type=Example)
