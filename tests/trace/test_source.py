"""Opening: what a file is, is told by what is in it; what can not be read is refused with a way out."""

import gzip
import io
import sys
from pathlib import Path

import pytest

from sublight.errors import InputFileError
from sublight.trace.read import main, read_trace
from sublight.trace.repairs import RepairKind

from .samples import everything, found, kineto, read, typical, write

TEXT = kineto(typical(300))
WHOLE = everything(read(TEXT))


def gzip_member(text: bytes, flags: int = 0, extra: bytes = b"") -> bytes:
    packed = gzip.compress(text, mtime=0)
    return packed[:3] + bytes([flags]) + packed[4:10] + extra + packed[10:]


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(TEXT),
        gzip.compress(TEXT[:5000]) + gzip.compress(TEXT[5000:]),
        gzip.compress(TEXT) + b"\0" * 1000,
        gzip.compress(TEXT[:5000]) + b"\0" * 512 + gzip.compress(TEXT[5000:]),
        gzip_member(TEXT, 8, b"trace.json\0"),
        gzip_member(TEXT, 16, b"a comment\0"),
        gzip_member(TEXT, 4, b"\x05\x00extra"),
        gzip_member(TEXT, 2, b"\x12\x34"),
        gzip_member(TEXT, 4 + 8 + 16 + 2, b"\x01\x00xname\0comment\0\x12\x34"),
        gzip.compress(b"") + gzip.compress(TEXT),
    ],
)
def test_every_form_of_gzip(tmp_path: Path, packed: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(packed)
    assert everything(read_trace(path)) == WHOLE


def test_a_wrong_checksum_costs_nothing_but_a_word(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[-6] ^= 0xFF
    path = tmp_path / "t.gz"
    path.write_bytes(bytes(packed))
    trace = read_trace(path)
    assert found(trace) == {**found(read(TEXT)), RepairKind.DAMAGED_COMPRESSION: 1}
    assert everything(trace)["gpu.start"] == WHOLE["gpu.start"]
    assert "the checksum does not fit" in trace.repairs[0].note


def test_what_follows_the_gzip_data_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(TEXT) + b"and then some")
    trace = read_trace(path)
    assert everything(trace)["gpu.start"] == WHOLE["gpu.start"]
    assert "something follows that is not gzip" in trace.repairs[0].note


def test_zstd(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(TEXT[:7000]) + zstandard.ZstdCompressor().compress(TEXT[7000:])
    path = tmp_path / "t"
    path.write_bytes(packed)
    trace = read_trace(path)
    assert everything(trace) == WHOLE
    assert trace.origin.compression == "zstd"
    path.write_bytes(packed[: len(packed) - 500])
    assert found(read_trace(path))[RepairKind.TRUNCATED] == 1


def test_zstd_without_a_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("zstandard", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "t"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 100)
    with pytest.raises(InputFileError) as caught:
        read_trace(path)
    assert "pip install zstandard" in caught.value.hint


def test_isal_gives_the_same_as_zlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("isal")
    path = write(tmp_path, TEXT, "t.json.gz")
    with_isal = everything(read_trace(path))
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert everything(read_trace(path)) == with_isal == WHOLE


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    data = gzip.compress(TEXT) if packed else TEXT
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    trace = read_trace("-")
    assert everything(trace) == WHOLE
    assert trace.origin.path == "standard input"


@pytest.mark.parametrize(
    ("data", "name", "found_words", "hint"),
    [
        (b"PK\x03\x04....", "t.json", "a zip archive", "unpack"),
        (b"BZh91AY", "t.json", "compressed with bzip2", "bunzip2"),
        (b"\xfd7zXZ\0", "t.json", "compressed with xz", "unxz"),
        (b"\xff\xfe{\0", "t.json", "UTF-16", "UTF-8"),
        (b"\x7fELF\x02", "t.json", "a program", "profiler"),
        (b"\x01\x02\x00\x03", "t.json", "not text", "torch profiler trace"),
        (b"binary report", "run.nsys-rep", "only by Nsight Systems", "nsys export --type sqlite --output"),
    ],
)
def test_other_files_are_refused_by_what_they_are(
    tmp_path: Path, data: bytes, name: str, found_words: str, hint: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputFileError) as caught:
        read_trace(path)
    assert found_words in caught.value.found
    assert hint in caught.value.hint


def test_the_command_for_a_report_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"anything")
    with pytest.raises(InputFileError) as caught:
        read_trace(path)
    assert f"nsys export --type sqlite --output {tmp_path}/run.sqlite {path}" in caught.value.hint


def test_what_can_not_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="No such file"):
        read_trace(tmp_path / "absent.json")
    with pytest.raises(InputFileError, match="it is a folder"):
        read_trace(tmp_path)


def test_the_command_prints_an_overview_and_answers_2_for_a_bad_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = write(tmp_path, TEXT), write(tmp_path, b"nothing", "bad.json")
    assert main([str(good)]) == 0
    shown = capsys.readouterr().out
    assert "GPU: 360 kernels, 60 copies, no memsets, no whole graphs on 2 streams" in shown
    assert "launched by graphs 0, by single calls 300, by no call in the trace 120" in shown
    assert main([str(bad), str(good)]) == 2
    assert "traceEvents" in capsys.readouterr().err
