"""Small Nsight Systems exports as different versions wrote them: tables and columns that come and go."""

import sqlite3
from pathlib import Path
from typing import Any

START = 1_000_000_000
PID = 4711


def global_id(pid: int, tid: int = 0) -> int:
    return 281 << 48 | pid << 24 | tid


OLD = {  # 2020: no graphs, no driver split, all columns filled
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INT NOT NULL, end INT NOT NULL, globalTid INT NOT NULL, correlationId INT NOT NULL, "
        "nameId INT NOT NULL, returnValue INT NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL, "
        "correlationId INT NOT NULL, shortName INT NOT NULL, globalPid INT, gridX INT, gridY INT, gridZ INT, "
        "blockX INT, blockY INT, blockZ INT, staticSharedMemory INT, dynamicSharedMemory INT, registersPerThread INT"
    ),
    "NVTX_EVENTS": "start INT, end INT, eventType INT, text TEXT, globalTid INT",
    "TARGET_INFO_GPU": "id INT, name TEXT, totalMemory INT",
}
NEW = {  # 2024 and later
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "ANALYSIS_DETAILS": "globalVid INTEGER, duration INTEGER, startTime INTEGER, stopTime INTEGER",
    "TARGET_INFO_GPU": (
        "vmId INTEGER, id INTEGER, name TEXT, totalMemory INTEGER, memoryBandwidth INTEGER, smCount INTEGER, "
        "maxShmemPerBlockOptin INTEGER, smMajor INTEGER, smMinor INTEGER"
    ),
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER, numMultiprocessors INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, "
        "nameId INTEGER NOT NULL, returnValue INTEGER, callchainId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER, "
        "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
        "demangledName INTEGER, shortName INTEGER, mangledName INTEGER, registersPerThread INTEGER, gridX INTEGER, "
        "gridY INTEGER, gridZ INTEGER, blockX INTEGER, "
        "blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
        "globalPid INTEGER, bytes INTEGER, copyKind INTEGER, graphNodeId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
        "globalPid INTEGER, value INTEGER, bytes INTEGER, graphNodeId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, greenContextId INTEGER, streamId INTEGER, "
        "correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, "
        "color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER"
    ),
}


class Export:
    """A database under construction.

    Args:
        path: where it goes.
        tables: name -> columns.
    """

    def __init__(self, path: Path, tables: dict[str, str]) -> None:
        self.path = path
        self._connection = sqlite3.connect(path)
        self._strings: dict[str, int] = {}
        for name, columns in tables.items():
            self._connection.execute(f"CREATE TABLE {name} ({columns})")

    def add(self, table: str, **values: Any) -> None:
        columns = ", ".join(values)
        marks = ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", list(values.values()))

    def string(self, text: str) -> int:
        """The number of a string, which is added when it is new."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def done(self) -> Path:
        self._connection.commit()
        self._connection.close()
        return self.path


def old(path: Path) -> Path:
    """Two kernels, their calls, a range and a mark."""
    export = Export(path, OLD)
    export.add("TARGET_INFO_GPU", id=0, name="Quadro", totalMemory=8 << 30)
    for number, name in enumerate(("gemm", "norm")):
        at = START + number * 1000
        export.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=at - 500, end=at - 400, globalTid=global_id(PID, 12),
            correlationId=number + 1, nameId=export.string("cudaLaunchKernel_v7000"), returnValue=0,
        )  # fmt: skip
        export.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=at, end=at + 300 + number, deviceId=0, contextId=1, streamId=7,
            correlationId=number + 1, shortName=export.string(name), globalPid=global_id(PID), gridX=2, gridY=3,
            gridZ=4, blockX=32, blockY=1, blockZ=1, staticSharedMemory=100, dynamicSharedMemory=28,
            registersPerThread=40,
        )  # fmt: skip
    export.add(
        "NVTX_EVENTS", start=START - 900, end=START + 2000, eventType=59, text="decode", globalTid=global_id(PID, 12)
    )
    export.add("NVTX_EVENTS", start=START, end=None, eventType=34, text="mark", globalTid=global_id(PID, 12))
    return export.done()


def new(path: Path, *, processes: int = 1) -> Path:
    """Per process one graph launch of two kernel nodes and a copy node, a memset, and ranges of both kinds."""
    export = Export(path, NEW)
    export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.11.4")
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1759449600_000000000)
    export.add("ANALYSIS_DETAILS", globalVid=1, duration=10**9, startTime=0, stopTime=START + 10**9)
    for rank in range(processes):
        pid = PID + rank
        export.add(
            "TARGET_INFO_GPU", id=rank + 4, name="NVIDIA H200", totalMemory=141 << 30, smCount=132,
            maxShmemPerBlockOptin=232448, smMajor=9, smMinor=0,
        )  # fmt: skip
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=rank + 4, cudaId=rank, pid=pid, numMultiprocessors=132)
        export.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=START - 500, end=START - 400, eventClass=1,
            globalTid=global_id(pid, pid), correlationId=77, nameId=export.string("cudaGraphLaunch_v10000"),
            returnValue=0,
        )  # fmt: skip
        where = {"deviceId": rank, "contextId": 1, "streamId": 7, "correlationId": 77, "globalPid": global_id(pid)}
        for number in (1, 0):  # not in the order of time
            export.add(
                "CUPTI_ACTIVITY_KIND_KERNEL", start=START + number * 100, end=START + number * 100 + 60, **where,
                demangledName=export.string(f"void kernel<{number}>(int)"), shortName=export.string("kernel"),
                registersPerThread=128, gridX=132, gridY=1, gridZ=1, blockX=384, blockY=1, blockZ=1,
                staticSharedMemory=0, dynamicSharedMemory=1024, graphNodeId=2**33 + number,
            )  # fmt: skip
        export.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", start=START + 300, end=START + 320, **where, bytes=4096, copyKind=8,
            graphNodeId=2**33 + 9,
        )  # fmt: skip
        export.add(
            "CUPTI_ACTIVITY_KIND_MEMSET", start=START + 400, end=START + 410, **where, value=0, bytes=64,
            graphNodeId=None,
        )  # fmt: skip
        thread = {"globalTid": global_id(pid, pid), "domainId": 0}
        export.add(
            "NVTX_EVENTS", start=START - 900, end=START + 900, eventType=59, textId=export.string("step"), **thread,
        )  # fmt: skip
        export.add("NVTX_EVENTS", start=START - 800, end=START + 800, eventType=60, text="inner", **thread)
        export.add("NVTX_EVENTS", start=START - 700, end=None, eventType=60, text="never ends", **thread)
        export.add("NVTX_EVENTS", start=START - 700, end=None, eventType=34, text="a mark", **thread)
    return export.done()


def calls_only(path: Path) -> Path:
    """What is left where the profiler was not allowed to trace kernels."""
    export = Export(path, {name: NEW[name] for name in ("StringIds", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")})
    for number in range(3):
        export.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=START + number, end=START + number + 1, correlationId=number,
            globalTid=global_id(PID, PID), nameId=export.string("cudaLaunchKernel_v7000"), returnValue=0,
        )  # fmt: skip
    return export.done()


def graphs_only(path: Path) -> Path:
    """What nsys records by default: a graph as one row."""
    export = Export(path, NEW)
    for number in range(3):
        at = START + number * 10_000
        export.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=at - 500, end=at - 400, eventClass=1, globalTid=global_id(PID, PID),
            correlationId=number + 1, nameId=export.string("cudaGraphLaunch_v10000"), returnValue=0,
        )  # fmt: skip
        export.add(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=at, end=at + 9_000, deviceId=0, contextId=1, streamId=7,
            correlationId=number + 1, globalPid=global_id(PID), graphId=5, graphExecId=6,
        )  # fmt: skip
    return export.done()
