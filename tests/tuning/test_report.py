"""Folders and snapshots: what is read, what is refused, and that a saved machine is judged again the same."""

import json
from pathlib import Path

import msgspec
import pytest

from sublight.errors import HostError, InputFileError, RecordError
from sublight.hosts.base import Completed
from sublight.records import decode, encode, save
from sublight.report.views import document, record_types
from sublight.tuning.record import HostReport
from sublight.tuning.report import folder_report, host_report, read_snapshot, snapshot_report
from sublight.tuning.sources import SOURCES
from tests.tuning.judged import H200
from tests.tuning.machines import Server, folder


def test_names_of_files_say_nothing(tmp_path: Path) -> None:
    texts = Server().texts()
    shuffled = dict(zip(reversed(list(texts)), texts.values(), strict=True))
    one, other = (folder_report(folder(tmp_path / name, t)) for name, t in (("a", texts), ("b", shuffled)))
    assert [(f.knob, f.found, f.verdict) for f in one.findings] == [
        (f.knob, f.found, f.verdict) for f in other.findings
    ]


def test_all_outputs_in_one_file(tmp_path: Path) -> None:
    one = folder_report(folder(tmp_path / "a", Server().texts()))
    texts = Server().texts()
    del texts["g.log"]  # a command line is known by being alone in its file
    joined = folder_report(folder(tmp_path / "b", {"all.txt": "\n".join(texts.values())}))
    assert joined.machine.gpus == msgspec.structs.replace(one.machine, gpus=joined.machine.gpus).gpus
    assert set(joined.labels.values()) == {"all.txt"}
    assert {f.knob: f.found for f in joined.findings}["peer access (P2P)"] == "OK for all 6 pairs"


def test_two_files_of_a_kind_and_strangers(tmp_path: Path) -> None:
    report = folder_report(folder(tmp_path, Server().texts() | {"z.log": Server(width=8).smi(), "notes.txt": "hello"}))
    assert report.remarks == (
        "a.log and z.log are both nvidia-smi -q: the first of them is read",
        "not recognised, and left out: notes.txt",
    )


@pytest.mark.parametrize(
    ("files", "found"),
    [({}, "it is empty"), ({"a": "hello", "b": ""}, "none of its 2 files is recognised")],
)
def test_a_folder_with_nothing_to_read(tmp_path: Path, files: dict[str, str], found: str) -> None:
    with pytest.raises(InputFileError) as error:
        folder_report(folder(tmp_path, files))
    assert error.value.found == found and "nvidia-smi -q" in error.value.hint


def test_what_is_no_folder(tmp_path: Path) -> None:
    for path, found in ((tmp_path / "none", "it is not there"), (H200 / "smi.log", "it is not a folder")):
        with pytest.raises(InputFileError) as error:
            folder_report(path)
        assert error.value.found == found


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    folder(tmp_path, {"a.log": Server().smi()})
    (tmp_path / "b.bin").write_bytes(bytes(range(256)) * 100)
    assert folder_report(tmp_path).remarks == ("not recognised, and left out: b.bin",)


@pytest.mark.parametrize("made", [False, True])
def test_a_saved_machine_is_judged_again_the_same(tmp_path: Path, made: bool) -> None:
    report = folder_report(folder(tmp_path / "f", Server(acs="+").texts()) if made else H200)
    save(report, tmp_path / "saved.json")
    again = snapshot_report(tmp_path / "saved.json")
    # Only the reason of what is missing differs: a snapshot, not a folder.
    assert again.machine.gpus == report.machine.gpus and again.machine.topology == report.machine.topology
    assert [(f.knob, f.verdict, f.read_from) for f in again.findings] == [
        (f.knob, f.verdict, f.read_from) for f in report.findings
    ]
    assert again.remarks == report.remarks and again.how == "snapshot"


def test_a_record_survives_and_is_shown(tmp_path: Path) -> None:
    report = folder_report(H200)
    back = decode(encode(report), record_types())
    assert back == report
    assert document(back).title == "Host: 2x-h200"


def test_a_record_that_was_edited_is_refused() -> None:
    report = folder_report(H200)
    for changed in (
        msgspec.structs.replace(report, findings=report.findings[::-1]),
        msgspec.structs.replace(report, findings=(report.findings[0], *report.findings)),
    ):
        with pytest.raises(RecordError) as error:
            decode(encode(changed), {"host": HostReport})
        assert "changed after it was written" in error.value.found


def test_another_record_that_carries_answers(tmp_path: Path) -> None:
    saved = json.loads(encode(folder_report(H200)))
    saved["schema"] = "sublight/something-else"
    saved["record"] = {"recording": saved["record"]["recording"], "more": [1, 2]}
    path = tmp_path / "other.json"
    path.write_text(json.dumps(saved))
    recording, labels, remarks = read_snapshot(path)
    assert len(recording.answers) == 11 and (labels, remarks) == ({}, ())
    found = {f.knob: f.found for f in snapshot_report(path).findings}
    assert found["PCIe width of the GPUs"] == "x16 on all 2 GPUs"
    assert found["PCIe MaxReadReq"] == "lspci -vvv: not in the snapshot"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("no json", "not a record that Sublight wrote"),
        ("{}", "not a record that Sublight wrote"),
        ("[1]", "not a record that Sublight wrote"),
    ],
)
def test_what_is_no_snapshot(tmp_path: Path, content: str, found: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(RecordError) as error:
        snapshot_report(path)
    assert found in error.value.found


def altered(tmp_path: Path, **changes: object) -> Path:
    saved = json.loads(encode(folder_report(H200)))
    path = tmp_path / "x.json"
    path.write_text(json.dumps(saved | changes))
    return path


def test_a_snapshot_of_a_newer_schema(tmp_path: Path) -> None:
    with pytest.raises(RecordError) as error:
        snapshot_report(altered(tmp_path, version=99))
    assert "version 99" in error.value.found and "at least as new" in error.value.hint


def test_a_record_without_answers(tmp_path: Path) -> None:
    with pytest.raises(RecordError) as error:
        snapshot_report(altered(tmp_path, schema="sublight/limit", record={"rows": []}))
    assert error.value.found == "a record of kind 'sublight/limit' holds no answers of a machine"
    with pytest.raises(RecordError) as error:
        snapshot_report(altered(tmp_path, record={"recording": {"name": 1}}))
    assert "its recording does not fit" in error.value.found


def test_a_damaged_answer(tmp_path: Path) -> None:
    saved = json.loads(encode(folder_report(H200)))
    saved["record"]["recording"]["answers"][0]["stdout"] = "broken"
    path = tmp_path / "x.json"
    path.write_text(json.dumps(saved))
    with pytest.raises(RecordError) as error:
        snapshot_report(path)
    assert "damaged" in error.value.found


class Box:
    """A host that answers what it has, and fails as real ones do for the rest."""

    name = "me@box"

    def __init__(self, answers: dict[tuple[str, ...], Completed]) -> None:
        self.answers = answers

    def run(self, argv: tuple[str, ...], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        return self.answers.get(tuple(argv), Completed(tuple(argv), 127))


def test_a_tool_that_hangs_or_fails_is_a_reason() -> None:
    smi, lspci, grep = ("nvidia-smi", "-q"), ("lspci", "-vvv"), ("uname", "-sr")
    report = host_report(
        Box(
            {
                smi: Completed(smi, None, seconds=60.0),
                lspci: Completed(lspci, 1, b"", b"pcilib: Cannot open /proc/bus/pci\n"),
                grep: Completed(grep, 0, b"Linux 6.8.0-31-generic\n"),
            }
        ),
        "ssh",
    )
    found = {f.knob: f.found for f in report.findings}
    assert found["persistence mode"].startswith("nvidia-smi did not end within 60 s")
    assert found["PCIe MaxPayload"] == "lspci left with exit code 1: pcilib: Cannot open /proc/bus/pci"
    assert found["kernel"] == "6.8.0-31-generic"
    assert report.machine.gpus_note.startswith("nvidia-smi did not end within 60 s")


def test_a_machine_that_goes_away_leaves_what_it_said() -> None:
    lost = HostError("running a command on box with ssh", "the connection was closed from the other side", "again")

    class Leaving(Box):
        left = 3

        def run(self, argv: tuple[str, ...], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
            self.left -= 1
            if self.left < 0:
                raise lost
            return super().run(argv)

    smi = ("nvidia-smi", "-q")
    report = host_report(Leaving({smi: Completed(smi, 0, Server().smi().encode())}), "ssh")
    found = {f.knob: f.found for f in report.findings}
    assert found["persistence mode"] == "on for all 4 GPUs"
    assert found["kernel"].startswith("uname -sr, /proc/cmdline: the connection was lost: the connection was closed")
    assert report.remarks == ("not everything was asked: the connection was lost: " + lost.found,)
    gone = Leaving({})
    gone.left = 0
    with pytest.raises(HostError):
        host_report(gone, "ssh")


def test_a_hung_driver_is_waited_for_once() -> None:
    class Hung(Box):
        asked = 0

        def run(self, argv: tuple[str, ...], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
            self.asked += argv[0] == "nvidia-smi"
            return Completed(tuple(argv), None, seconds=timeout_s) if argv[0] == "nvidia-smi" else super().run(argv)

    box = Hung({})
    report = host_report(box, "local")
    assert box.asked == 1
    found = {f.knob: f.found for f in report.findings}
    assert found["peer access (P2P)"] == found["power limit"] == "nvidia-smi did not end within 60 s"


def test_part_of_several_files_is_an_answer() -> None:
    argv = SOURCES["kernel settings"].argv
    box = Box({argv: Completed(argv, 2, b"/proc/sys/vm/swappiness:60\n")})
    findings = {f.knob: f for f in host_report(box, "local").findings}
    assert findings["swappiness"].found == "60" and findings["swappiness"].read_from == ("/proc/sys/vm/swappiness",)


def test_no_name_of_a_person_is_kept() -> None:
    report = host_report(Box({}), "ssh")
    assert report.name == "box" and report.recording.name == "box"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (b"No devices were found\n", "nvidia-smi says: No devices were found"),
        (bytes(range(128, 256)) * 9, "nvidia-smi printed nothing that is known"),
        (b"", "nvidia-smi printed nothing that is known"),
    ],
)
def test_a_tool_that_ends_well_and_says_what_is_wrong(said: bytes, found: str) -> None:
    asked = [argv for argv in (source.argv for source in SOURCES.values()) if argv[0] == "nvidia-smi"]
    report = host_report(Box({argv: Completed(argv, 0, said) for argv in asked}), "local")
    assert report.machine.gpus_note == found
    texts = {finding.knob: finding.found for finding in report.findings}
    assert texts["all-reduce without NVLink"] == texts["peer access (P2P)"] == texts["power limit"] == found


def test_folders_and_files_of_the_kernel_are_not_read(tmp_path: Path) -> None:
    for place in ("/proc", "/proc/self", "/sys"):
        with pytest.raises(InputFileError) as error:
            folder_report(Path(place))
        assert error.value.found == "it is a folder of the running kernel, not of saved output"
    folder(tmp_path, {"a.log": Server().smi()})
    (tmp_path / "b.log").symlink_to("/proc/kmsg")  # to whoever may read it, it waits for the next message
    assert folder_report(tmp_path).remarks == ("not recognised, and left out: b.log",)
