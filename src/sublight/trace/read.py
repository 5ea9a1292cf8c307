"""One door to every form of trace. `python -m sublight.trace.read FILE...` prints what is in them."""

import sys
from pathlib import Path

from sublight.errors import InputFileError
from sublight.trace.chrome import read_chrome
from sublight.trace.events import Trace
from sublight.trace.nsys import read_nsys
from sublight.trace.repairs import RepairLog
from sublight.trace.source import Source


def read_trace(path: str | Path, *, operators: bool = True, python: bool = False) -> Trace:
    """Read a profiler's file, whatever it is called.

    Args:
        path: the file, or "-" for standard input.
        operators: keep the operators of the CPU; otherwise they are only counted, and `Trace.ops` is empty.
        python: keep Python functions too (`Trace.python`); otherwise they are only counted.

    Raises:
        InputFileError: it can not be read, or is no trace. Damage within a trace is no error: see `Trace.repairs`.
    """
    repairs = RepairLog()
    source = Source(path, repairs)
    try:
        if source.form == "sqlite":
            return read_nsys(source, repairs)
        return read_chrome(source, repairs, operators=operators, python=python)
    except OSError as error:
        found = f"the file could not be read to its end ({error.strerror or error})"
        raise InputFileError(f"reading the trace {source.name}", found, "a copy on another disk") from None
    finally:
        source.close()


def main(paths: list[str]) -> int:
    """Print an overview of each file; 2 if one could not be read."""
    from sublight.trace.overview import overview_lines

    code = 0
    for path in paths:
        try:
            print("\n".join(overview_lines(read_trace(path))))
        except InputFileError as error:
            print(error, file=sys.stderr)
            code = 2
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
