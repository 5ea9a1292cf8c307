"""Registry: a name, and the object it stands for, imported only when asked for.

Built-in names are listed where the registry is made, as "module:attribute". Other packages add names through one
entry-point group each; those are looked at only when a built-in name does not answer, because reading the entry
points of a large environment takes longer than everything else a start does.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from sublight.errors import UnknownNameError


class Registry:
    """Names of one kind.

    Args:
        kind: what a name stands for, as an error would say it ("model family").
        group: entry-point group that other packages may add names to.
        builtin: name -> "module:attribute".
        hint: what to try for a name that is near no known one.
    """

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str], hint: str = "") -> None:
        self.kind = kind
        self.group = group
        self.hint = hint
        self._targets = dict(builtin)
        self._entry_points_read = False

    def names(self) -> list[str]:
        """Every name, built in or added by an installed package, sorted."""
        self._read_entry_points()
        return sorted(self._targets)

    def __contains__(self, name: str) -> bool:
        if name not in self._targets:
            self._read_entry_points()
        return name in self._targets

    def load(self, name: str) -> Any:
        """The object behind `name`. Raises UnknownNameError with the near misses."""
        if name not in self:
            raise UnknownNameError(self.kind, name, self._targets, self.hint)
        module, _, attribute = self._targets[name].partition(":")
        return getattr(import_module(module), attribute)

    def _read_entry_points(self) -> None:
        if self._entry_points_read:
            return
        from importlib.metadata import entry_points

        self._entry_points_read = True
        for point in entry_points(group=self.group):
            self._targets.setdefault(point.name, point.value)
