"""Small packages written by tests, and read as installed ones are."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

from sublight.audit.source.tree import Module, Sources
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
