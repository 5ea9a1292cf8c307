"""Shipped GPU code against one exact architecture: what runs there, and how much of it was built for it.

Machine code (sm_XY) runs on its own architecture and on later minor versions of the same major one; with "f" on its
family (the same major, the same or a later minor), with "a" nowhere else. PTX is translated by the driver for anything
newer, with "a" only for itself. NVIDIA, CUDA C++ Programming Guide, "Compute capabilities" and nvcc's `-arch` rules.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from sublight.audit.replies import CodeObject
from sublight.units import counted

_TARGET = re.compile(r"(sm|compute)_(\d+)(\d)([af?]?)")


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of some shipped code runs on one architecture.

    Attributes:
        units: compiled units (source files of a library, or cubins) with any GPU code.
        exact: of them, those with machine code for just this architecture ("sm_120", "sm_120a").
        runs: those with machine code that runs there, `exact` ones included.
        translated: those with nothing but PTX for it, which the driver has to translate.
        targets: target -> how many units have code for it, over all units.
    """

    units: int = 0
    exact: int = 0
    runs: int = 0
    translated: int = 0
    targets: dict[str, int] = {}

    @property
    def share(self) -> float:
        """Of the units, those built for just this architecture."""
        return self.exact / self.units if self.units else 0.0

    def counted(self, sm: str) -> str:
        """ "60 of 1,696 units are built for sm_103 (3.5 %); code of 1,636 others runs there too"."""
        built = "is built" if self.exact == 1 else "are built"
        said = f"{self.exact:,} of {counted(self.units, 'unit')} {built} for {sm} ({self.share:.1%})".replace("%", " %")
        if self.runs > self.exact:
            others = counted(self.runs - self.exact, "other")
            said += f"; code of {others} runs there too"
        if self.translated:
            said += f"; {counted(self.translated, 'has', 'have')} PTX that the driver translates"
        return said


def runs_on(code: str, capability: tuple[int, int]) -> bool:
    """Whether code for a target ("sm_100f", "compute_90") can run on a card of this compute capability."""
    match = _TARGET.fullmatch(code)
    if match is None:
        return False
    kind, major, minor, suffix = match[1], int(match[2]), int(match[3]), match[4]
    if suffix in ("a", "?"):
        return (major, minor) == capability
    if suffix == "f" or kind == "sm":
        return major == capability[0] and minor <= capability[1]
    return (major, minor) <= capability


def exactly(code: str, capability: tuple[int, int]) -> bool:
    """Whether it is machine code for just this architecture, whatever suffix it has."""
    match = _TARGET.fullmatch(code)
    return match is not None and match[1] == "sm" and (int(match[2]), int(match[3])) == capability


def coverage(objects: Iterable[CodeObject], capability: tuple[int, int]) -> Coverage:
    """Sums over the units of several files. Names of files and folders are never looked at."""
    units = exact = runs = translated = 0
    targets: Counter[str] = Counter()
    for found in objects:
        for codes, count in found.units:
            if not codes:
                continue
            units += count
            for code in codes:
                targets[code] += count
            machine = [code for code in codes if code.startswith("sm_") and runs_on(code, capability)]
            exact += count * any(exactly(code, capability) for code in machine)
            runs += count * bool(machine)
            translated += count * (not machine and any(runs_on(code, capability) for code in codes))
    return Coverage(
        units=units,
        exact=exact,
        runs=runs,
        translated=translated,
        targets=dict(sorted(targets.items(), key=_by_target)),
    )


def _by_target(entry: tuple[str, int]) -> tuple[int, str]:
    match = _TARGET.fullmatch(entry[0])
    return (int(match[2] + match[3]), entry[0]) if match else (0, entry[0])


def shown(targets: Mapping[str, int]) -> str:
    """ "sm_90a x 182, sm_100f x 24"."""
    return ", ".join(f"{target} x {count}" for target, count in targets.items()) or "none"
