"""Scenes with everything given by hand: what one rung answers for an installation that can be read in a few lines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sublight.audit.engines.base import Gate, Need, Route
from sublight.audit.installation import Installation
from sublight.audit.ladder import Answer, Proof
from sublight.audit.replies import (
    Clash,
    CodeObject,
    Distribution,
    Distributions,
    Imported,
    Interpreter,
    Objects,
    Owner,
    Tool,
    Toolchain,
)
from sublight.audit.scene import Scene
from sublight.audit.source.tree import Sources
from sublight.audit.target import Shape, Target
from tests.audit.wheels import Disk


def target(major: int = 12, minor: int = 0, **changes: Any) -> Target:
    fields: dict[str, Any] = {
        "model": "glm-5-nvfp4",
        "model_type": "glm_moe_dsa",
        "architecture": "GlmMoeDsaForCausalLM",
        "method": "modelopt",
        "expert_format": "NVFP4",
        "activation_format": "NVFP4",
        "shape": Shape(hidden=6144, width=256, experts=256, top_k=8),
        "gpu": "rtx-pro-6000-server",
    }
    return Target(compute_capability=(major, minor), **{**fields, **changes})


def toolchain(*tools: Tool, libraries: Sequence[str] = ()) -> Toolchain:
    return Toolchain(tools, {name: f"/usr/lib/{name}" for name in libraries})


def nvcc(release: str, *targets: str, path: str = "/usr/local/cuda/bin/nvcc") -> Tool:
    return Tool("nvcc", path, ("on the PATH",), release, targets)


def installation(
    distributions: Sequence[Distribution] = (),
    owners: Mapping[str, Sequence[str]] | None = None,
    tools: Toolchain | None = None,
    clashes: Sequence[Clash] = (),
    environment: Mapping[str, str] | None = None,
    interpreter: bool = True,
) -> Installation:
    """`owners`: import name -> distributions that ship it."""
    versions = {d.name: d.version for d in distributions}
    return Installation(
        name="/env/bin/python",
        interpreter=Interpreter(
            "/env/bin/python", "3.12.3", "CPython", "/env", "x86_64", "Linux", "glibc 2.39", (), dict(environment or {})
        )
        if interpreter
        else None,
        found=Distributions(
            "print",
            False,
            tuple(distributions),
            {
                top: tuple(Owner(name, versions.get(name, ""), 9, "/env/site") for name in names)
                for top, names in (owners or {}).items()
            },
            tuple(clashes),
        ),
        cards=None,
        toolchain=tools,
        reasons={} if tools else {"toolchain": "nobody was asked"},
    )


def distribution(name: str, version: str, *requires: str) -> Distribution:
    return Distribution(name, version, "/env/site", f"{name}-{version}.dist-info", requires, 9, "hash")


def scene(
    where: Installation,
    folder: Path,
    *,
    judged: Target | None = None,
    engine: Distribution | None = None,
    objects: Mapping[str, Sequence[CodeObject]] | None = None,
    imported: Mapping[str, Imported] | None = None,
    not_imported: str = "",
    **more: Any,
) -> Scene:
    """`folder` holds the source of every package."""
    roots = {path.name.removesuffix(".py"): str(folder) for path in folder.iterdir()}
    return Scene(
        target=judged or target(),
        installation=where,
        sources=Sources(Disk(), roots),
        package="engine",
        distribution=engine,
        objects={name: Objects(tuple(found)) for name, found in (objects or {}).items()},
        imported=imported or {},
        not_imported=not_imported,
        **more,
    )


def code(path: str, *units: tuple[Sequence[str], int], needed: Sequence[str] = ()) -> CodeObject:
    return CodeObject(path, 1, 1, "library", tuple((tuple(codes), count) for codes, count in units), tuple(needed))


def route(*symbols: str, gates: Sequence[Gate] = (), destination: str = "engine.moe.run") -> Route:
    needs = tuple(Need(symbol, f"engine/moe.py:{number}", "lazy") for number, symbol in enumerate(symbols, 1))
    return Route(
        answer=Answer.PASS, why="a branch asks for it", destination=destination, needs=needs, gates=tuple(gates)
    )


def gate(answer: Answer, text: str, *targets: str) -> Gate:
    return Gate(answer, text, Proof("source", "kernels/gate.py:1", text), targets)
