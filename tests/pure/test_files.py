"""Files: read only where they are regular and of a plausible size, written together or not at all."""

import os
from pathlib import Path

import pytest

from sublight.errors import InputFileError
from sublight.files import is_present, read_small_file, write_atomically, write_together


def reason(path: Path, at_most: int = 100) -> str:
    with pytest.raises(InputFileError) as error:
        read_small_file(path, "reading it", "another", at_most)
    assert (error.value.asked, error.value.hint) == ("reading it", "another")
    return error.value.found


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    assert reason(tmp_path / "pipe") == "it is a pipe, not a regular file"
    assert reason(Path("/dev/zero")) == "it is a device, not a regular file"
    assert reason(tmp_path) == "it is a folder, not a regular file"
    assert reason(tmp_path / "link") == "it is a link to a file that is not there"
    assert reason(tmp_path / "none") == "No such file or directory"
    assert reason(tmp_path / ("a" * 300)) == "File name too long"


def test_a_size_beyond_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 101)
    assert reason(tmp_path / "file") == "it has 101 bytes, far more than such a file has"
    assert read_small_file(tmp_path / "file", "", "", 101) == b"x" * 101
    assert "larger than 100 bytes" in reason(Path("/proc/self/maps"))  # says that it is empty


def test_a_link_to_nowhere_is_present(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert is_present(tmp_path / "link")
    assert not is_present(tmp_path / "none")
    assert not is_present(tmp_path / ("a" * 300))


def test_a_link_still_leads_to_the_file_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", b"one")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


def test_pipes_devices_and_folders_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for path, word in (
        (tmp_path / "pipe", "a pipe"),
        (Path("/dev/null"), "a device"),
        (tmp_path, "a folder"),
        (tmp_path / "loop", "leads back to itself"),
    ):
        with pytest.raises(InputFileError, match=word):
            write_atomically(path, b"x")
    assert (tmp_path / "pipe").is_fifo()


def test_of_two_files_none_is_written_when_one_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with pytest.raises(InputFileError, match="there is no folder"):
        write_together({tmp_path / "old": b"new", tmp_path / "no" / "such": b"new"})
    assert (tmp_path / "old").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_name_of_the_longest_kind_can_be_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("a" * 255), b"x")
    assert (tmp_path / ("a" * 255)).read_bytes() == b"x"
