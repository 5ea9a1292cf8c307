"""From a machine, a folder or a snapshot to its report."""

from pathlib import Path
from typing import Any, Literal

import msgspec

from sublight.errors import RecordError
from sublight.files import read_small_file
from sublight.hosts.base import Host
from sublight.hosts.naming import name_kept
from sublight.hosts.recorded import NOT_IN_THE_SNAPSHOT, RecordedHost
from sublight.hosts.recorder import RecordingHost
from sublight.hosts.recording import Recording
from sublight.records import Envelope
from sublight.tuning.checks import CHECKS
from sublight.tuning.checks.base import Check
from sublight.tuning.clean import clean
from sublight.tuning.folder import read_folder
from sublight.tuning.machine import machine_facts
from sublight.tuning.readings import Readings, collect
from sublight.tuning.record import Finding, HostReport, in_order
from sublight.tuning.sources import SOURCES

How = Literal["local", "ssh", "folder", "snapshot"]
_LARGEST_BYTES = 512 * 1024 * 1024
_HINT = "a file that sublight host --save or sublight audit --save wrote"


def host_report(host: Host, how: How) -> HostReport:
    """Ask a machine and judge it. Raises HostError when it cannot be asked."""
    recorder = RecordingHost(host, clean)
    readings = collect(recorder)
    name = name_kept(host.name)
    remarks = (f"not everything was asked: {readings.lost}",) if readings.lost else ()
    return _report(name, how, readings, recorder.recording(name), remarks=remarks)


def folder_report(path: Path) -> HostReport:
    """Judge a machine by a folder of its output. Raises InputFileError."""
    folder = read_folder(path)
    readings = collect(RecordedHost(folder.recording), folder.labels, "not in the folder")
    return _report(folder.recording.name, "folder", readings, folder.recording, folder.labels, folder.remarks)


def snapshot_report(path: Path) -> HostReport:
    """Judge a machine again by what a saved record holds of its answers. Raises InputFileError and RecordError."""
    recording, labels, remarks = read_snapshot(path)
    readings = collect(RecordedHost(recording), labels, NOT_IN_THE_SNAPSHOT)
    return _report(recording.name, "snapshot", readings, recording, labels, remarks)


def read_snapshot(path: Path) -> tuple[Recording, dict[str, str], tuple[str, ...]]:
    """The recording that a saved record of any kind carries in a field `recording`, with what labels its answers.

    Raises InputFileError when the file cannot be read, RecordError when it is no record or carries no recording.
    """
    asked = f"reading {path} as a snapshot of a machine"
    data = read_small_file(path, asked, _HINT, _LARGEST_BYTES)
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
        record: dict[str, Any] = msgspec.json.decode(envelope.record, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(asked, f"this is not a record that Sublight wrote ({error})", _HINT) from None
    if envelope.schema == f"sublight/{HostReport.schema}" and envelope.version > HostReport.version:
        found = f"it has version {envelope.version} of {envelope.schema!r}, written by {envelope.written_by}"
        raise RecordError(asked, found, "a Sublight at least as new as the one that wrote it")
    if not isinstance(record.get("recording"), dict):
        if envelope.schema == "sublight/audit":
            found = "this audit is of folders (--path): it asked no machine, so that it holds no answers to judge again"
            raise RecordError(asked, found, "sublight host, on the machine itself or with --host")
        raise RecordError(asked, f"a record of kind {envelope.schema!r} holds no answers of a machine", _HINT)
    try:
        recording = msgspec.convert(record["recording"], Recording)
        labels = msgspec.convert(record.get("labels", {}), dict[str, str])
        remarks = msgspec.convert(record.get("remarks", ()), tuple[str, ...])
    except msgspec.ValidationError as error:
        raise RecordError(asked, f"its recording does not fit: {error}", _HINT) from None
    if not {answer.argv for answer in recording.answers} & {source.argv for source in SOURCES.values()}:
        found = f"this {envelope.schema.removeprefix('sublight/')} holds what is installed, and nothing of the machine"
        raise RecordError(asked, found, f"{_HINT}, of a machine and not of a folder")
    return recording, labels, remarks


def _report(
    name: str,
    how: How,
    readings: Readings,
    recording: Recording,
    labels: dict[str, str] | None = None,
    remarks: tuple[str, ...] = (),
) -> HostReport:
    machine = machine_facts(readings)
    findings: list[Finding] = []
    for check_name in CHECKS.names():
        check: Check = CHECKS.load(check_name)
        findings += check.judge(readings, machine)
    return HostReport(
        name=name,
        how=how,
        machine=machine,
        findings=tuple(in_order(findings)),
        recording=recording,
        labels=labels or {},
        remarks=remarks,
    )
