"""What a reader counts, and what a file says about itself when that is garbled."""

from sublight.trace.events import Device
from sublight.trace.header import read_header
from sublight.trace.links import lost_launches
from sublight.trace.repairs import OBSERVATIONS, Repair, RepairKind, RepairLog

from .samples import EPOCH_NS, Sample, kineto, read


def test_a_log_counts_and_keeps_the_first_case_of_a_kind() -> None:
    log, part = RepairLog(), RepairLog()
    log.add(RepairKind.CLIPPED, "cut", "first", 2, removed_ns=70)
    log.add(RepairKind.TRUNCATED, "ends", "x" * 500)
    part.add(RepairKind.CLIPPED, "cut", "second", 3, removed_ns=5)
    log.extend(part.all())
    assert log.all() == [
        Repair(RepairKind.TRUNCATED, 1, "ends", "x" * 199 + "…"),
        Repair(RepairKind.CLIPPED, 5, "cut", "first", 75),
    ]
    assert [repair.changed for repair in log.all()] == [True, True]
    assert not Repair(RepairKind.OVERLAP, 1, "").changed
    assert RepairKind.LOST_KERNELS in OBSERVATIONS


def test_a_garbled_header_costs_only_what_is_garbled() -> None:
    header = read_header(
        {
            "schemaVersion": b"1",
            "baseTimeNanoseconds": b'"1790857026000000000"',
            "distributedInfo": b'{"rank": "3", "world_size": null}',
            "deviceProperties": b'[{"id": 0, "name": "A"}, {"id": 0, "name": "again"}, 5, {"id": 1, "numSms": "x"}]',
            "traceName": b"17",
            "cupti_version": b"130001",
            "more": b"{broken",
        }
    )  # fmt: skip
    assert (header.schema_version, header.base_time_ns) == (1, 1790857026000000000)
    assert (header.rank, header.world_size, header.name) == (3, None, "")
    assert header.devices == (Device(0, "A"), Device(1, ""))
    assert header.versions == {"cupti_version": "130001"}
    other = read_header({"distributedInfo": b"[]", "deviceProperties": b"{}", "baseTimeNanoseconds": b"1e400"})
    assert (other.rank, other.devices, other.base_time_ns) == (None, (), 0)


def test_an_end_of_capture_whose_beginning_was_not_seen_hides_nothing() -> None:
    sample = Sample()
    for number, name in enumerate(("EndCapture", "", "BeginCapture", "", "EndCapture"), 1):
        sample.call(EPOCH_NS + number * 100, 5, f"cudaStream{name}" if name else "cudaLaunchKernel", number)
    trace = read(kineto(sample))
    assert [int(trace.calls.correlation[row]) for row in lost_launches(trace.gpu, trace.calls).tolist()] == [2]
