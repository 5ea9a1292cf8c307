"""Runs in the audited interpreter, once for each group of names: imports them and tells what was found.

Its arguments: FD PARENT LIMIT_S BLOCKED SYMBOL... ; BLOCKED is a JSON list of modules whose import ended another such
process. What is written to FD, a JSON line each: ["+", MODULE, FILE] when the code of a module begins to run,
["-", MODULE] when it is over, ["!", MODULE] before it ends itself because a blocked module is asked for, and an object
for each symbol. So whoever reads it knows, however this process ends, which module's import it ended in.

Every import that fails on the way is kept with who asked for it, also where the asker swallowed the error: a name that
is missing from a package is explained by the import that failed inside it, possibly modules away.
"""

from __future__ import annotations

import builtins
import faulthandler
import importlib
import importlib.abc
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

_MOST = 40
_KILL = 9
_import = builtins.__import__
failures: list[tuple[str, str, Exception, str]] = []


def watching(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    """`__import__` that notes what fails, and names that are missing from a module, before Python says so."""
    try:
        module = _import(name, globals, locals, fromlist, level)
    except Exception as error:
        _note("." * level + name, error, globals)
        raise
    for wanted in fromlist or ():
        if wanted != "*" and isinstance(wanted, str) and not hasattr(module, wanted):
            where = getattr(module, "__name__", name)
            if f"{where}.{wanted}" not in sys.modules:
                missing = ImportError(f"cannot import name {wanted!r} from {where!r}")
                _note(f"{where}.{wanted}", missing, globals)
    return module


def _note(name: str, error: Exception, asker: Any) -> None:
    asked_by = (asker or {}).get("__name__", "")
    if len(failures) < _MOST and not any(error is known for _, _, known, _ in failures):
        frame = sys._getframe(2)
        failures.append((name, asked_by, error, f"{frame.f_code.co_filename}:{frame.f_lineno}"))


class AbsentError(AttributeError):
    """That a name is not there, as opposed to an error of code on the way to it."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.absent = name


def _shown(error: BaseException) -> str:
    text = str(error)  # a long one tells what was tried first, and what went wrong last
    return f"{_type(error)}: {text if len(text) <= 1000 else f'{text[:500]} ... {text[-500:]}'}"


def _type(error: BaseException) -> str:
    return AttributeError.__name__ if isinstance(error, AbsentError) else type(error).__name__


def _lacking(error: BaseException) -> str:
    """The dotted name that is not there; "" for an error of another kind."""
    if isinstance(error, AbsentError):
        return error.absent
    return error.name or "" if isinstance(error, ModuleNotFoundError) else ""


def found(symbol: str) -> tuple[Any, str]:
    """The object, and the module it was found in. Raises what importing raises, AttributeError for a missing name."""
    parts = symbol.split(".")
    for length in range(max(1, len(parts) - 1), 0, -1):
        base = ".".join(parts[:length])
        try:
            thing: Any = importlib.import_module(base)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if length > 1 and (base == missing or base.startswith(missing + ".")):
                continue  # perhaps it names an attribute, not a module
            raise
        module = base
        for part in parts[length:]:
            path = f"{module}.{part}"
            if not hasattr(thing, part) and thing is sys.modules.get(module):
                try:
                    importlib.import_module(path)
                except ModuleNotFoundError as error:
                    if error.name != path or part != parts[-1]:
                        raise
            if not hasattr(thing, part):
                kind = "module" if thing is sys.modules.get(module) else type(thing).__name__
                raise AbsentError(f"{kind} {module!r} has no {part!r}", f"{module}.{part}")
            thing = getattr(thing, part)
            module = path if path in sys.modules else module
        return thing, module
    raise AssertionError(symbol)


def described(thing: Any, module: str) -> dict[str, Any]:
    code = getattr(getattr(thing, "__wrapped__", thing), "__code__", None)
    home = getattr(thing, "__module__", None) or module
    file = getattr(thing, "__file__", None) if not isinstance(thing, type) and hasattr(thing, "__path__") else None
    file = (
        file or getattr(sys.modules.get(home), "__file__", None) or getattr(sys.modules.get(module), "__file__", None)
    )
    return {
        "outcome": "found",
        "kind": "module" if type(thing).__name__ == "module" else type(thing).__name__,
        "home": f"{home}.{thing.__qualname__}" if hasattr(thing, "__qualname__") else home,
        "file": file or "",
        "line": code.co_firstlineno if code is not None and code.co_filename == file else 0,
        "message": "",
    }


def tried(symbol: str) -> dict[str, Any]:
    started = time.perf_counter()
    failures.clear()
    try:
        entry = described(*found(symbol))
    except BaseException as error:  # SystemExit from a module is an answer too
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if f.filename != "<string>" and "importlib" not in f.filename]
        entry = {"outcome": "error", "message": _shown(error), "type": _type(error)}
        entry["lacks"] = _lacking(error)
        entry["frames"] = [f"{f.filename}:{f.lineno}" for f in own[-4:]]
    top = symbol.partition(".")[0]
    entry["swallowed"] = [
        {"name": name, "by": by, "where": where, "message": _shown(error)}
        for name, by, error, where in failures
        if by.partition(".")[0] == top
    ]
    entry["loaded"] = _loaded(top)
    entry["seconds"] = time.perf_counter() - started
    return dict(entry, symbol=symbol)


def _loaded(top: str) -> dict[str, list[int]]:
    """The source files of the package that were used: an answer holds as long as none of them changes."""
    files: dict[str, list[int]] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] == top and isinstance(file, str) and os.path.isfile(file):
            state = os.stat(file)
            files[file] = [state.st_size, state.st_mtime_ns]
    return files


class Watch(importlib.abc.MetaPathFinder):
    """Tells of every module when its code begins to run and when that is over, and refuses those that are blocked."""

    def __init__(self, reply: int, blocked: list[str]) -> None:
        self.reply = reply
        self.blocked = frozenset(blocked)

    def tell(self, said: Any) -> None:
        os.write(self.reply, (json.dumps(said) + "\n").encode("utf-8"))

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name in self.blocked:
            self.tell(["!", name])
            os._exit(0)
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        loader = spec.loader if spec is not None else None
        # Of other kinds (of a zip file, built in) one loader serves many modules, and is left as it is.
        if spec is not None and getattr(loader, "name", None) == name and hasattr(loader, "__dict__"):
            self.watch(loader, name, spec.origin)
        return spec

    def watch(self, loader: Any, name: str, origin: str | None) -> None:
        """A compiled module runs code when it is made, one of Python when it is executed."""
        make, run = getattr(loader, "create_module", None), getattr(loader, "exec_module", None)
        if make is None or run is None:
            return

        def create_module(spec: Any) -> Any:
            self.tell(["+", name, origin or ""])
            try:
                return make(spec)
            except BaseException:
                self.tell(["-", name])
                raise

        def exec_module(module: Any) -> None:
            try:
                run(module)
            finally:
                self.tell(["-", name])

        loader.create_module, loader.exec_module = create_module, exec_module


def end_with(parent: int) -> None:
    """Asks the system to end this process with the one that started it, which Linux does."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, _KILL)  # PR_SET_PDEATHSIG
    except (ImportError, OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    reply, parent, limit_s, blocked = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    symbols = sys.argv[5:]
    signal.alarm(limit_s)  # where the system does not do it: if whoever started this is gone, nobody else ends it
    end_with(parent)
    faulthandler.register(signal.SIGUSR1)  # whoever ends it asks before where it is
    sys.argv[:] = ["-c"]
    builtins.__import__ = watching
    watch = Watch(reply, blocked)
    sys.meta_path.insert(0, watch)
    for symbol in symbols:
        watch.tell(tried(symbol))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
