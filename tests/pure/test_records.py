"""Records: saved, shown again, refused when they are not ours."""

from pathlib import Path

import msgspec
import pytest

from sublight import records
from sublight.errors import InputFileError, RecordError
from sublight.records import Evidence, Figure, Record, not_known


class Small(Record, frozen=True, kw_only=True):
    schema = "small"
    version = 2

    count: int
    time_s: Figure


TYPES: dict[str, type[Record]] = {"small": Small}
ONE = Small(count=3, time_s=Figure(0.5, Evidence.GIVEN, "--measured"))


def test_round_trip(tmp_path: Path) -> None:
    records.save(ONE, tmp_path / "one.json")
    assert records.load(tmp_path / "one.json", TYPES) == ONE
    assert [p.name for p in tmp_path.iterdir()] == ["one.json"]


def test_the_envelope_says_what_it_is() -> None:
    envelope = msgspec.json.decode(records.encode(ONE))
    assert envelope["schema"] == "sublight/small"
    assert envelope["version"] == 2
    assert envelope["written_by"].startswith("sublight ")
    assert set(envelope["environment"]) == {"python", "system", "machine"}
    assert envelope["record"] == {"count": 3, "time_s": {"value": 0.5, "evidence": "given", "source": "--measured"}}


def altered(**changes: object) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(records.encode(ONE)) | changes)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "not a record"),
        (b"{", "not a record"),
        (b"[]", "not a record"),
        (b'{"traceEvents": []}', "not a record"),
        (altered(schema="sublight/large"), "'sublight/large'"),
        (altered(version=3), "has version 3"),
        (altered(record={"count": "three", "time_s": {"value": 1, "evidence": "given"}}), "does not fit"),
        (altered(record={"count": 3}), "does not fit"),
        (altered(record={"count": 3, "time_s": {"value": None, "evidence": "given"}}), "does not fit"),
    ],
)
def test_what_is_no_record(data: bytes, found: str) -> None:
    with pytest.raises(RecordError) as error:
        records.decode(data, TYPES)
    assert found in error.value.found


def test_an_older_version_is_read() -> None:
    assert records.decode(altered(version=1), TYPES) == ONE


def test_a_missing_file_and_an_unwritable_folder(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="No such file"):
        records.load(tmp_path / "none.json", TYPES)
    with pytest.raises(InputFileError, match="writing"):
        records.save(ONE, tmp_path / "no" / "such" / "folder.json")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.json"
    path.write_text("old")

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputFileError, match="No space left"):
        records.save(ONE, path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["one.json"]


def test_a_figure_is_known_or_says_why_not() -> None:
    with pytest.raises(ValueError, match="no value exactly when"):
        Figure(None, Evidence.COMPUTED)
    with pytest.raises(ValueError, match="no value exactly when"):
        Figure(1.0, Evidence.NOT_KNOWN, note="?")
    with pytest.raises(ValueError, match="needs the reason"):
        Figure(None, Evidence.NOT_KNOWN)
    with pytest.raises(ValueError, match="not known: nobody measured"):
        _ = not_known("nobody measured it").known
    assert Figure(2.0, Evidence.MEASURED).known == 2.0
