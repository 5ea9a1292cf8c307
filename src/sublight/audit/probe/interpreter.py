"""The interpreter itself, where it looks for packages, and the part of its environment that engines read."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sys
from typing import Any

# Values that tell a setting and no secret: switches, numbers and lists of them, paths; of some names, words as well.
_PLAIN = re.compile(
    r"(?i:true|false|yes|no|on|off|none|auto|default)?"
    r"|[-+]?\d+(?:\.\d+)*[a-z%+]{0,3}(?:[,;: -]+\d+(?:\.\d+)*[a-z%+]{0,3})*"
    r"|[/~.][\w./:,+~ -]*"
)
_WORDS = re.compile(
    "(?:ALGO|ALGORITHM|ALLOC_CONF|ARCH_LIST|BACKEND|BACKENDS|DEBUG|DEVICES|DTYPE|HCA|IFNAME|LEVEL|METHOD|MODE|PROTO"
    "|SUBSYS|TYPE)$"
)
_SECRET = re.compile("TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)


def describe(prefixes: list[str]) -> dict[str, Any]:
    """Version, folders and environment.

    Of the environment only variables that begin with one of `prefixes` are told, and of those whose name sounds like a
    secret, or whose value is no switch, number or path, only that they are set.
    """
    return {
        "executable": sys.executable,
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "prefix": sys.prefix,
        "machine": platform.machine(),
        "system": platform.system(),
        "libc": " ".join(platform.libc_ver()),
        "files": files(),
        "path": [entry for entry in sys.path if entry],
        "environment": _environment(tuple(prefixes)),
    }


def files() -> str:
    """Which tree of files its paths are of: the same on both sides where a path means the same file on both.

    A program that is started as an interpreter may run Python in a container, whose "/usr/lib" is another.
    """
    root = os.stat("/")
    try:
        mounts = os.readlink("/proc/self/ns/mnt")
    except OSError:
        mounts = ""
    return f"{root.st_dev}:{root.st_ino} {mounts}".strip()


def _environment(prefixes: tuple[str, ...]) -> dict[str, str]:
    chosen = sorted(name for name in os.environ if name.startswith(prefixes))
    return {
        name: os.environ[name][:500] if _is_plain(name, os.environ[name]) else "(set, not shown)" for name in chosen
    }


def _is_plain(name: str, value: str) -> bool:
    if _SECRET.search(name):
        return False
    return bool(_PLAIN.fullmatch(value)) or bool(_WORDS.search(name) and re.fullmatch(r"[\w.,:;=^|/ +-]{1,200}", value))


def packages(names: list[str]) -> dict[str, Any]:
    """Where each top-level package would be imported from: the folder that holds it, and its file. Nothing is imported.

    `find_spec` of a top-level name runs no code of the package, but hooks of editable installs answer it.
    """
    found = {}
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError) as error:
            found[name] = {"folder": "", "file": "", "error": f"{type(error).__name__}: {error}"}
            continue
        if spec is None:
            continue
        places = list(spec.submodule_search_locations or [])
        file = spec.origin if spec.origin and os.path.exists(spec.origin) else ""
        inside = places[0] if places else file
        found[name] = {"folder": os.path.dirname(inside), "file": file, "error": ""}
    return found
