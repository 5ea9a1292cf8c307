"""Reading a configuration field by field, so that a wrong one is named and a missing one is never guessed."""

import math
from collections.abc import Mapping
from typing import Any

from sublight.errors import ConfigError
from sublight.units import counted

# No published model is within a factor of ten of this; a larger size is a slip of the pen and would overflow later.
_LARGEST_SIZE = 10**8
# Each layer and each expert is gone through, so a slip of the pen in these would take hours.
_MOST_LAYERS, _MOST_EXPERTS = 10_000, 65_536
_LARGEST = {
    **dict.fromkeys(
        ("num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"), _MOST_LAYERS
    ),
    **dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts", "n_shared_experts"), _MOST_EXPERTS),
}

_MISSING: Any = object()


class Fields:
    """A JSON object of a model configuration, with typed access.

    Args:
        data: the decoded object.
        name: how errors call it, usually the file's path.
    """

    def __init__(self, data: Mapping[str, Any], name: str) -> None:
        self.data = data
        self.name = name

    def __contains__(self, key: str) -> bool:
        return self.data.get(key) is not None

    def error(self, found: str, hint: str) -> ConfigError:
        return ConfigError(f"reading {self.name}", found, hint)

    def size(self, *keys: str, default: Any = _MISSING, least: int = 1) -> int:
        """A whole number under the first of `keys` that is there (null counts as absent)."""
        key, value = self._first(keys, default)
        if value is default and default is not _MISSING:
            return value  # type: ignore[no-any-return]
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error(f"{key} is {value}, where a size is needed", f"a whole number for {key}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{key} is {_show(value)}, which is not a whole number", f"a whole number for {key}")
        if value < least:
            raise self.error(f"{key} is {value}, which is below {least}", f"a {key} of at least {least}")
        most = _LARGEST.get(key, _LARGEST_SIZE)
        if value > most:
            raise self.error(f"{key} is {value}, beyond any model", f"a {key} of at most {most}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(f"{key} is {_show(value)}, which is not true or false", f"true or false for {key}")
        return value

    def text(self, key: str, default: str = "") -> str:
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(f"{key} is {_show(value)}, which is not text", f"a string for {key}")
        return value

    def sizes(self, key: str, length: int | None = None) -> list[int] | None:
        """A list of whole numbers from 0 up, or None when the field is absent."""
        items = self.list(key, length)
        if items is None:
            return None
        for item in items:
            if isinstance(item, bool) or not isinstance(item, int) or item < 0:
                raise self.error(f"{key} holds {_show(item)}", f"whole numbers from 0 up in {key}")
        return items

    def names(self, key: str, length: int | None = None) -> list[str] | None:
        """A list of strings, or None when the field is absent."""
        items = self.list(key, length)
        if items is None:
            return None
        for item in items:
            if not isinstance(item, str):
                raise self.error(f"{key} holds {_show(item)}", f"strings in {key}")
        return items

    def list(self, key: str, length: int | None = None) -> list[Any] | None:
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.error(f"{key} is {_show(value)}, which is not a list", f"a list for {key}")
        if length is not None and len(value) != length:
            raise self.error(
                f"{key} has {counted(len(value), 'entry', 'entries')} for {counted(length, 'layer')}",
                f"one entry a layer in {key}",
            )
        return value

    def object(self, key: str) -> "Fields | None":
        """A nested object, or None when the field is absent."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(f"{key} is {_show(value)}, which is not an object", f"an object for {key}")
        return Fields(value, f"{self.name} ({key})")

    def _first(self, keys: tuple[str, ...], default: Any) -> tuple[str, Any]:
        for key in keys:
            value = self.data.get(key)
            if value is not None:
                return key, value
        if default is not _MISSING:
            return keys[0], default
        wanted = " or ".join(keys)
        raise self.error(f"it has no {wanted}", f"the model's own config.json, whole, with {wanted}")


def _show(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "nested without end"
    return text if len(text) <= 40 else text[:37] + "..."
