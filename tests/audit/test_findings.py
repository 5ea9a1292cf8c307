"""What is said beside the ladders: variables nobody reads, and why an area of an engine could not be read."""

from pathlib import Path

import msgspec

from sublight.audit.doors import Door
from sublight.audit.engines.base import Route
from sublight.audit.engines.sglang import SGLANG
from sublight.audit.importable import needs_of
from sublight.audit.ladder import Answer, Ladder, Proof, Rung, failed
from sublight.audit.reading import DiskReader, DoorReader, WatchedSources
from sublight.audit.routes import read
from sublight.audit.snapshot import SnapshotDoor
from sublight.hosts.recording import Recording
from sublight.report.blocks import Listing
from sublight.report.views.audit_reasons import reasons
from tests.audit.scenes import target


def sources(folder: Path, door: Door | None = None) -> WatchedSources:
    (folder / "sglang" / "srt").mkdir(parents=True)
    (folder / "sglang" / "__init__.py").write_text("")
    return WatchedSources(DoorReader(door) if door else DiskReader(), {"sglang": str(folder)})


def test_files_that_are_missing_are_named_and_the_engine_is_not_blamed(tmp_path: Path) -> None:
    why = read(SGLANG, sources(tmp_path), target(), ("moe",)).not_read["moe"]
    assert why.startswith("sources that declare its backends are missing: sglang/srt/")
    assert "sglang/srt/server_args.py" in why


def test_what_a_snapshot_did_not_record_is_no_fault_of_the_engine(tmp_path: Path) -> None:
    door = SnapshotDoor(Recording("there", ()))
    why = read(SGLANG, sources(tmp_path, door), target(), ("moe",)).not_read["moe"]
    assert why.startswith("the sources that declare its backends were not recorded in the snapshot: sglang")


def test_a_layout_that_is_new_is_said_to_be(tmp_path: Path) -> None:
    made = sources(tmp_path)
    assert made.absent("sglang") == []
    assert made.module("sglang.srt.gone") is None
    assert made.absent("sglang") == ["sglang/srt/gone.py"]
    (tmp_path / "sglang" / "names.py").write_text("VALUE = 1\n")
    assert made.module("sglang.names") is not None
    assert made.module("sglang.names.VALUE") is None
    assert made.absent("sglang") == ["sglang/srt/gone.py"]


def test_what_a_path_without_needs_imports_stands_at_its_last_line() -> None:
    lines = (Proof("source", "engine/choose.py:3", "a branch"), Proof("source", "engine/moe.py:9", "the call"))
    route = Route(answer=Answer.PASS, why="", destination="engine.moe.run", proofs=lines)
    assert [(need.symbol, need.where) for need in needs_of(route)] == [("engine.moe.run", "engine/moe.py:9")]
    assert needs_of(msgspec.structs.replace(route, answer=Answer.FAIL)) == ()


def test_what_to_try_is_not_told_twice() -> None:
    """The engine's own message often ends with its advice."""

    def told(hint: str) -> str:
        step = failed(Rung.REACHABLE, "refused: no kernels here. Use --moe cutlass instead", hint=hint)
        blocks = list(reasons([Ladder(area="moe", name="lora", flag="--moe lora", steps=(step,))]))
        (listing,) = [block for block in blocks if isinstance(block, Listing)]
        return listing.items[0].text

    assert told("use --moe cutlass instead.") == (
        "lora: not reachable: refused: no kernels here. Use --moe cutlass instead."
    )
    assert told("another layout").endswith("instead. Try: another layout.")
