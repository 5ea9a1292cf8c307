"""An Nsight Systems database: the tables and columns it happens to have, and what it says about the machine.

Tables exist only where something was recorded, and columns came and went with the versions, so everything is asked for
only if it is there. The file is opened read-only and immutable: it may lie where nothing can be written.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from sublight.errors import InputFileError
from sublight.trace.events import Device
from sublight.trace.repairs import RepairKind, RepairLog

_PORTION = 20_000


class Database:
    """An export, open for reading.

    Args:
        path: the file.
        repairs: learns of damage; rows read before it are used.
    """

    def __init__(self, path: Path, repairs: RepairLog) -> None:
        self.path = path
        self._repairs = repairs
        try:
            self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
            # Text that is no UTF-8 must not end the reading.
            self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
            names = [row[0] for row in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            self.columns = {name: self._columns(name) for name in names}
        except sqlite3.Error as error:
            raise InputFileError(
                f"reading the trace {path}",
                f"the SQLite database can not be read ({error})",
                "export it again: nsys export --type sqlite --force-overwrite=true REPORT.nsys-rep",
            ) from None

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self._connection.execute(f"PRAGMA table_info({_quoted(table)})")}

    def portions(self, table: str, columns: tuple[str, ...]) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of a table, some thousand at a time, in the order of the file; absent columns are None."""
        there = self.columns.get(table)
        if there is None:
            return
        chosen = ", ".join(_quoted(column) if column in there else "NULL" for column in columns)
        try:
            cursor = self._connection.execute(f"SELECT {chosen} FROM {_quoted(table)}")  # noqa: S608 - our own names
            while portion := cursor.fetchmany(_PORTION):
                yield portion
        except sqlite3.Error as error:
            self._repairs.add(
                RepairKind.TRUNCATED,
                f"the database is damaged ({error}); the rows before the damage were used",
                f"in table {table}",
            )

    def rows(self, table: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """All rows of a small table."""
        return [row for portion in self.portions(table, columns) for row in portion]

    def strings(self, ids: list[int]) -> dict[int, str]:
        """The texts of these ids."""
        found: dict[int, str] = {}
        if "StringIds" not in self.columns:
            return found
        for low in range(0, len(ids), 500):
            some = ids[low : low + 500]
            marks = ", ".join("?" * len(some))
            try:
                found.update(self._connection.execute(f"SELECT id, value FROM StringIds WHERE id IN ({marks})", some))  # noqa: S608
            except sqlite3.Error as error:
                self._repairs.add(RepairKind.TRUNCATED, f"the database is damaged ({error}); some names are missing")
        return found

    def version(self) -> str:
        """The version of the export's layout, "" if it is not told."""
        facts = dict(self.rows("META_DATA_EXPORT", ("name", "value")))
        if "EXPORT_SCHEMA_VERSION" in facts:
            return str(facts["EXPORT_SCHEMA_VERSION"])
        parts = [facts.get(f"EXPORT_SCHEMA_VERSION_{part}") for part in ("MAJOR", "MINOR", "MICRO")]
        return ".".join(str(part) for part in parts if part is not None)

    def start_ns(self) -> int:
        """When the session began, in nanoseconds since 1970; 0 if it is not told."""
        rows = self.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
        return rows[0][0] if rows and isinstance(rows[0][0], int) else 0

    def window(self) -> tuple[int, int] | None:
        """The time in which the profiler ran."""
        for first, last in self.rows("ANALYSIS_DETAILS", ("startTime", "stopTime")):
            if isinstance(first, int) and isinstance(last, int) and last > first:
                return first, last
        return None

    def devices(self) -> tuple[Device, ...]:
        """The GPUs under the numbers that the rows use: those of CUDA, where they are told beside the hardware's."""
        wanted = ("id", "name", "smCount", "totalMemory", "maxShmemPerBlockOptin")
        major = ("computeMajor", "smMajor"), ("computeMinor", "smMinor")
        there = self.columns.get("TARGET_INFO_GPU", set())
        versions = tuple(next((name for name in names if name in there), names[0]) for names in major)
        hardware = {}
        for number, name, sms, memory, shared, high, low in self.rows("TARGET_INFO_GPU", (*wanted, *versions)):
            compute = (high, low) if isinstance(high, int) and isinstance(low, int) else None
            hardware[number] = Device(number, str(name), sms, memory, compute, shared)
        known = {
            cuda: gpu for cuda, gpu in self.rows("TARGET_INFO_CUDA_DEVICE", ("cudaId", "gpuId")) if gpu in hardware
        }
        if not known:
            return tuple(hardware.values())
        return tuple(
            Device(cuda, h.name, h.sms, h.memory_bytes, h.compute, h.shared_memory_per_block_bytes)
            for cuda, h in ((cuda, hardware[gpu]) for cuda, gpu in sorted(known.items()))
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
