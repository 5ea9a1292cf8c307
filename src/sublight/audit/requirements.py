"""Versions that an engine asks for, by its metadata (Requires-Dist) and by checks in its code, and those found."""

from collections.abc import Iterable, Iterator

import msgspec
from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from sublight.audit.engines.base import Pin
from sublight.audit.installation import Installation, normal
from sublight.audit.ladder import Proof
from sublight.audit.replies import Distribution, Interpreter


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """One thing asked of a distribution. `met` is None where a version or specifier cannot be read.

    `always` is false for a check that is made only under some condition, which `when` holds.
    """

    distribution: str
    specifier: str
    found: str
    met: bool | None
    proof: Proof
    when: str = ""

    @property
    def text(self) -> str:
        """ "flashinfer-python ==0.6.3, found 0.6.2"."""
        return f"{self.distribution} {self.specifier or 'any version'}, found {self.found or 'none'}"


def requirements(engine: Distribution, interpreter: Interpreter | None) -> Iterator[Requirement]:
    """What a plain `pip install` of the engine brings along on this machine: no extras, markers evaluated.

    Where no interpreter is known, a marker other than one for an extra counts as met.
    """
    environment = {str(k): str(v) for k, v in default_environment().items()}
    if interpreter is not None:
        environment |= {
            "python_version": ".".join(interpreter.version.split(".")[:2]),
            "python_full_version": interpreter.version,
            "platform_machine": interpreter.machine,
            "platform_system": interpreter.system,
            "sys_platform": interpreter.system.lower(),
        }
    for line in engine.requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({**environment, "extra": ""}):
            yield requirement


def demands(
    engine: Distribution | None, pins: tuple[Pin, ...], installation: Installation, distribution: str
) -> tuple[Demand, ...]:
    """Everything the engine asks of one distribution."""
    present = installation.distribution(distribution)
    version = present.version if present else ""
    found = []
    if engine is not None:
        where = f"{engine.info}/METADATA"
        found += [
            _demand(distribution, str(r.specifier), version, Proof("distribution", where, f"Requires-Dist: {r}"))
            for r in requirements(engine, installation.interpreter)
            if normal(r.name) == normal(distribution)
        ]
    found += [
        _demand(distribution, pin.specifier, version, pin.proof, pin.when)
        for pin in pins
        if normal(pin.distribution) == normal(distribution)
    ]
    return tuple(found)


def _demand(distribution: str, specifier: str, version: str, proof: Proof, when: str = "") -> Demand:
    return Demand(
        distribution=distribution,
        specifier=specifier,
        found=version,
        met=meets(version, specifier),
        proof=proof,
        when=when,
    )


def meets(version: str, specifier: str) -> bool | None:
    """Whether a version fits; pre-releases count as what they are. None for what cannot be read as one."""
    if not version:
        return False
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return None


def install_line(demanded: tuple[Demand, ...], distribution: str) -> str:
    """What to type to get a distribution as the engine asks for it."""
    pinned = next(
        (d.proof.text.removeprefix("Requires-Dist: ") for d in demanded if d.proof.kind == "distribution"), ""
    )
    wanted = pinned.partition(";")[0].strip() or distribution + (demanded[0].specifier if demanded else "")
    return f"pip install '{wanted}'"


def bringing(
    top: str, askers: Iterable[Distribution | None], interpreter: Interpreter | None
) -> tuple[Distribution, Requirement] | None:
    """Which distribution asks for one that ships an import name, by their names: "cutlass" is "nvidia-cutlass-dsl"'s.

    Metadata of what is not installed cannot be looked into, so that the one name is part of the other is all there is.
    """
    for asker in askers:
        if asker is None:
            continue
        for requirement in requirements(asker, interpreter):
            if f"-{normal(top)}-" in f"-{normal(requirement.name)}-":
                return asker, requirement
    return None


def install(requirement: Requirement) -> str:
    """What to type to get what is required."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"pip install '{requirement.name}{extras}{requirement.specifier}'"
