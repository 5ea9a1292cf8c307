"""Small packages written by tests, and read as installed ones are."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

from sublight.audit.source.tree import Module, Reader, Sources
from sublight.audit.target import Shape, Target
from sublight.facts.workload import Layout
from tests.audit.wheels import tree


def written(folder: Path, files: Mapping[str, str]) -> Sources:
    """The sources of what `files` (path -> text) holds; every folder on the way becomes a package."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        for parent in target.parents:
            if parent == folder:
                break
            if not (parent / "__init__.py").exists():
                (parent / "__init__.py").write_text("")
        target.write_text(textwrap.dedent(text))
    return tree(folder)


def module(text: str, name: str = "engine.part") -> Module:
    """One module by itself."""
    return Module(name, name.replace(".", "/") + ".py", textwrap.dedent(text).encode())


class Edited:
    """A machine's files, some of them with text replaced; nothing is written."""

    def __init__(self, reader: Reader, edits: Mapping[str, tuple[str, str]]) -> None:
        self.reader = reader
        self.edits = edits

    def read(self, path: str) -> bytes | None:
        data = self.reader.read(path)
        for ending, (old, new) in self.edits.items():
            if data is not None and path.endswith(ending):
                text = data.decode()
                assert old in text, f"{ending} has no {old!r}"
                data = text.replace(old, new).encode()
        return data

    def names(self, folder: str) -> tuple[str, ...]:
        return self.reader.names(folder)


class Without:
    """A machine's files, some of them gone."""

    def __init__(self, reader: Reader, *endings: str) -> None:
        self.reader = reader
        self.endings = endings

    def read(self, path: str) -> bytes | None:
        return None if path.endswith(self.endings) else self.reader.read(path)

    def names(self, folder: str) -> tuple[str, ...]:
        return tuple(name for name in self.reader.names(folder) if not f"{folder}/{name}".endswith(self.endings))


def edited(sources: Sources, edits: Mapping[str, tuple[str, str]]) -> Sources:
    """The same packages with text replaced in files (ending of a path -> what stands there, and what shall)."""
    return Sources(Edited(sources.reader, edits), sources.roots)


def without(sources: Sources, *endings: str) -> Sources:
    return Sources(Without(sources.reader, *endings), sources.roots)


def target(
    capability: tuple[int, int], expert_format: str = "NVFP4", activation_format: str = "NVFP4", **more: object
) -> Target:
    """GLM-5's experts on one of eight ranks, to be judged for a card of this capability."""
    question: dict[str, object] = {
        "model": "glm-5",
        "model_type": "glm_moe_dsa",
        "architecture": "GlmMoeDsaForCausalLM",
        "method": "modelopt",
        "shape": Shape(hidden=6144, width=256, experts=256, top_k=8),
        "gpu": f"a card of {capability[0]}.{capability[1]}",
        "gpus": 8,
        "layout": Layout(tp=8),
    }
    question |= {"expert_format": expert_format, "activation_format": activation_format, **more}
    return Target(compute_capability=capability, **question)  # type: ignore[arg-type]
