"""Sources: the modules of installed packages by dotted name, read and parsed only when asked for.

A folder without `__init__.py` is a module without statements: Python imports it as a namespace package.

Where the bytes come from (this machine, another one, a snapshot) is the reader's matter. A file that this interpreter
cannot parse, because its syntax is newer, is a module without a tree and with the reason.
"""

import ast
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Protocol


class Reader(Protocol):
    """Files of the machine that is audited."""

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None when there is no such file."""
        ...

    def names(self, folder: str) -> tuple[str, ...]:
        """What a folder holds, sorted; folders end in "/". Empty when there is no such folder."""
        ...


class Module:
    """One source file.

    Attributes:
        name: dotted.
        shown: the path a reader sees, from the package on: "sglang/srt/server_args.py"; "sglang/srt/" for a folder
            without `__init__.py`.
        is_package: whether it is an `__init__.py`, or such a folder.
        error: why it has no tree, "" when it has one.
    """

    def __init__(self, name: str, shown: str, data: bytes) -> None:
        self.name = name
        self.shown = shown
        self.is_package = shown.endswith(("__init__.py", "/"))
        self.text = data.decode("utf-8", "replace")
        self.error = ""

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file; an empty module, and `error` set, when it cannot be parsed."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in other people's strings
                return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.error = f"{self.shown} cannot be parsed by this Python: {error}"
            return ast.Module([], [])

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def at(self, node: ast.AST) -> str:
        """ "sglang/srt/server_args.py:176"."""
        return f"{self.shown}:{getattr(node, 'lineno', 1)}"

    def line(self, number: int) -> str:
        """The text of a line, stripped; "" beyond the end."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""


class Sources:
    """Modules by dotted name.

    Args:
        reader: gives the bytes.
        roots: top-level package or module -> the folder that holds it ("sglang" -> "/venv/lib/.../site-packages").
    """

    def __init__(self, reader: Reader, roots: Mapping[str, str]) -> None:
        self.reader = reader
        self.roots = dict(roots)
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """The module, or None when there is no source file of that name (a compiled module, or nothing at all)."""
        if name not in self._modules:
            self._modules[name] = self._load(name)
        return self._modules[name]

    def _load(self, name: str) -> Module | None:
        root = self.roots.get(name.partition(".")[0])
        if root is None or not all(part.isidentifier() for part in name.split(".")):
            return None
        relative = name.replace(".", "/")
        for shown in (f"{relative}/__init__.py", f"{relative}.py"):
            data = self.reader.read(f"{root}/{shown}")
            if data is not None:
                return Module(name, shown, data)
        return Module(name, f"{relative}/", b"") if self._is_namespace(root, relative) else None

    def _is_namespace(self, root: str, relative: str) -> bool:
        """Whether a folder without `__init__.py` is imported as a package: when it holds code, and no file comes first.

        A compiled module of the same name beside the folder comes first.
        """
        held = self.reader.names(f"{root}/{relative}")
        if not any(entry.endswith(("/", ".py", ".so", ".pyd")) for entry in held):
            return False
        above, _, stem = relative.rpartition("/")
        beside = self.reader.names(f"{root}/{above}" if above else root)
        return not any(entry.partition(".")[0] == stem and entry.endswith((".so", ".pyd")) for entry in beside)

    def submodules(self, name: str) -> tuple[str, ...]:
        """Dotted names of what lies directly inside a package, source files and packages alike."""
        root = self.roots.get(name.partition(".")[0])
        if root is None:
            return ()
        found = []
        for entry in self.reader.names(f"{root}/{name.replace('.', '/')}"):
            stem = entry.removesuffix("/").removesuffix(".py")
            if stem.isidentifier() and stem != "__init__" and (entry.endswith(("/", ".py"))):
                found.append(f"{name}.{stem}")
        return tuple(dict.fromkeys(found))

    def unparsed_at(self, *dotted: str) -> str:
        """Why a module on the way to one of these names has no tree, "" where all of them could be parsed."""
        for name in dotted:
            parts = name.split(".")
            modules = (self.module(".".join(parts[:count])) for count in range(len(parts), 1, -1))
            nearest = next((module for module in modules if module is not None), None)
            if nearest is not None and not nearest.tree.body and nearest.error:
                return nearest.error
        return ""

    def absolute(self, module: Module, dotted: str | None, level: int) -> str:
        """The full name an `from ..a import b` means inside `module`."""
        if not level:
            return dotted or ""
        parts = module.name.split(".")
        kept = parts[: len(parts) - level + (1 if module.is_package else 0)]
        return ".".join([*kept, *([dotted] if dotted else [])])
