"""Where results go: never over an input or a pipe, in any encoding, and with one line where nothing can be written."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.test_bad_input import GPUS, SMALL, refused, write

Sublight = Callable[..., Run]
LIMIT = ("limit", "glm-5-nvfp4", *GPUS)


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A line of shell in which $S is the program."""
    env = os.environ | {"S": f"{sys.executable} -m sublight"} | environment
    return subprocess.run(["sh", "-c", line], capture_output=True, env=env, cwd=folder, check=False, timeout=60)


@pytest.mark.parametrize(
    "option",
    ["--save", "--html", "--bandwidth", "--measured-gpu", "--claimed-floor", "--claimed-part", "--experts", "--trace"],
)
def test_a_shell_variable_that_is_not_set(sublight: Sublight, option: str) -> None:
    refused(sublight("gap", "glm-5-nvfp4", *GPUS, "--measured", "97ms", option, ""), f"{option} ''", "nothing is given")


def test_arguments_can_be_empty_too(sublight: Sublight) -> None:
    refused(sublight("limit", "", *GPUS), "MODEL ''")
    refused(sublight("show", " "), "RECORD ''")


def test_two_forms_at_once(sublight: Sublight) -> None:
    refused(sublight(*LIMIT, "--json", "--markdown"), "--json and --markdown")


def test_two_outputs_into_one_file(sublight: Sublight, tmp_path: Path) -> None:
    refused(sublight(*LIMIT, "--save", "a.json", "--html", "./a.json"), "--save and --html", "both write")
    (tmp_path / "link").symlink_to("a.json")
    refused(sublight(*LIMIT, "--save", "a.json", "--html", "link"), "both write")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_an_output_that_is_an_input(sublight: Sublight, tmp_path: Path) -> None:
    assert sublight(*LIMIT, "--save", "saved.json").code == 0
    config = write(tmp_path, SMALL)
    write(tmp_path, {"read_gbs": 7000}, "measured.json")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    same = "that is the file which is read"
    refused(sublight("show", "saved.json", "--html", "saved.json"), same)
    refused(sublight("show", "saved.json", "--save", "./saved.json"), same)
    refused(sublight("limit", config, *GPUS, "--save", "config.json"), same)
    refused(sublight("limit", ".", *GPUS, "--save", "config.json"), same)
    refused(sublight(*LIMIT, "--measured-gpu", "measured.json", "--html", "measured.json"), same)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_records_of_a_campaign_are_kept(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    assert sublight("note", "kept", "nothing changed", "--negative").code == 0
    refused(sublight("report", "kept", "--save", "kept/note-001.json"), "that is the file which is read")
    assert sublight("report", "kept", "--save", "kept/findings.json").code == 0


def test_outputs_that_no_file_may_replace(sublight: Sublight, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(sublight(*LIMIT, "--save", "pipe"), "it is a pipe")
    refused(sublight(*LIMIT, "--html", "/dev/null"), "it is a device")
    refused(sublight(*LIMIT, "--save", "."), "it is a folder")
    refused(sublight(*LIMIT, "--save", "good.json", "--html", "no/such/page.html"), "there is no folder")
    assert (tmp_path / "pipe").is_fifo() and [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_link_is_followed(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target.json")
    assert sublight(*LIMIT, "--save", "link").code == 0
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "target.json").read_text())["schema"] == "sublight/limit"


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "cp437", "ascii", "utf-16", "shift_jis"])
def test_encodings_that_lack_what_is_drawn(tmp_path: Path, encoding: str) -> None:
    for form in ("", "--markdown"):
        done = shell(f"$S gap {form}", tmp_path, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
        text = done.stdout.decode("utf-8" if encoding == "ascii" else encoding)
        assert (done.returncode, done.stderr) == (0, b"")
        assert "GLM-5-NVFP4" in text and "6.64" in text


def test_bars_stay_bars_in_latin_1(tmp_path: Path) -> None:
    done = shell("$S gap", tmp_path, PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert b"####" in done.stdout and b"-----" in done.stdout and b"?????" not in done.stdout


@pytest.mark.parametrize("command", ["$S gap", "$S gap --json", "$S --help", "$S limit --list"])
def test_a_full_disk_behind_the_output(tmp_path: Path, command: str) -> None:
    done = shell(f"{command} > /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "sublight: writing to standard output",
        "  found: No space left on device",
        "  try:   another place or name",
    ]


def test_a_closed_output_and_a_reader_that_leaves(tmp_path: Path) -> None:
    closed = shell("$S limit --list >&-", tmp_path)
    assert closed.returncode == 2 and b"it is closed" in closed.stderr and b"Traceback" not in closed.stderr
    gone = shell("$S gap --json | true", tmp_path)
    assert (gone.returncode, gone.stderr) == (0, b"")
    nowhere = shell("$S limit zzz 2> /dev/full", tmp_path)
    assert (nowhere.returncode, nowhere.stdout) == (2, b"")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*LIMIT, "--tp", "x"), ("sublight limit --tp", "'x' is not a valid integer")),
        ((*LIMIT, "--width", "3"), ("sublight limit --width", "3 is not in the range")),
        ((*LIMIT, "--foo"), ("there is no option --foo", "sublight limit --help")),
        ((*LIMIT, "--btach", "3"), ("there is no option --btach", "--batch")),
        ((*LIMIT, "--tp"), ("--tp", "requires an argument")),
        ((*LIMIT, "more"), ("more",)),
        (("show",), ("RECORD",)),
    ],
)
def test_errors_of_the_command_line(sublight: Sublight, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    refused(sublight(*arguments), *words)


def edited(path: Path, change: Callable[[Any], None]) -> None:
    whole = json.loads(path.read_text())
    change(whole["record"])
    path.with_name("edited.json").write_text(json.dumps(whole))


def set_in(points: list[dict[str, Any]], field: str, value: float) -> None:
    for point in points:
        point[field] = value


@pytest.mark.parametrize(
    "change",
    [
        lambda gap: gap["limit"]["rows"][0].update(id="nope"),
        lambda gap: gap["limit"]["collectives"][0].update(id="nope"),
        lambda gap: set_in(gap["points"], "batch", 0),
        lambda gap: set_in(gap["points"], "rows_s", -1),
        lambda gap: set_in(gap["points"], "memory_s", 1e308),
    ],
)
def test_a_record_that_was_edited(sublight: Sublight, tmp_path: Path, change: Callable[[Any], None]) -> None:
    assert sublight("gap", "--save", "saved.json").code == 0
    edited(tmp_path / "saved.json", change)
    refused(sublight("show", "edited.json", "--html", "page.html"), "edited.json")
    assert not (tmp_path / "page.html").exists()


def test_colour_only_where_the_terminal_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from sublight.cli.output import _colour

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert _colour()
    monkeypatch.setenv("TERM", "dumb")
    assert not _colour()


def test_ctrl_c_while_modules_load_is_quiet(tmp_path: Path) -> None:
    """The first library that is imported stands for all of them: the key is pressed while it loads."""
    (tmp_path / "click.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)\n")
    for line in ("$S gap", f"{sys.executable} -c 'from sublight.__main__ import main; main()' gap"):
        done = shell(line, tmp_path, PYTHONPATH=str(tmp_path))
        assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
    assert 'sublight = "sublight.__main__:main"' in (Path(__file__).parents[2] / "pyproject.toml").read_text()


def test_a_folder_that_takes_no_files_is_named(sublight: Sublight) -> None:
    refused(sublight(*LIMIT, "--save", "/proc/x.json"), "writing /proc/x.json", "no file can be made in /proc")


def test_whole_numbers_have_no_fraction(sublight: Sublight) -> None:
    listed = sublight("limit", "--list", "h200").out
    assert "  sm count: 132\n" in listed and "  pcie generation: 5\n" in listed


@pytest.mark.parametrize("kind", ["kernels", "ops", "comm"])
def test_without_torch_each_benchmark_says_what_to_install(tmp_path: Path, kind: str) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    done = shell(f"$S bench {kind} glm-5-nvfp4 --tp 8 --device cpu", tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    said = done.stderr.decode().splitlines()
    assert said[1:] == ["  found: torch is not installed", "  try:   pip install 'sublight[kernels]'"]
