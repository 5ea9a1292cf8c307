"""The same trace, however it is written and wherever it is cut, is the same columns."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.trace import tables
from sublight.trace.events import Collective, Kind, Lane, Launch, Node, Thread
from sublight.trace.read import read_trace

from .samples import (
    EPOCH_NS,
    GEMM,
    LAYOUTS,
    REDUCE,
    Sample,
    everything,
    gpu_rows,
    kineto,
    names,
    read,
    typical,
    write,
)

WHOLE = everything(read(kineto(typical())))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_events(layout: str) -> None:
    got = everything(read(LAYOUTS[layout](typical())))
    told_by_header = {"devices", "rank", "world_size", "base_time_ns", "name", "schema_version"}
    bare = layout in ("bare", "leading commas")
    for key, value in WHOLE.items():
        if not (bare and key in told_by_header):
            assert got[key] == value, key


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.integers(1, 5000))
def test_no_block_size_changes_a_column(layout: str, block_bytes: int) -> None:
    text = LAYOUTS[layout](typical(12))
    assert everything(read(text, block_bytes)) == everything(read(text))


def test_what_is_in_the_columns() -> None:
    sample = Sample()
    sample.launched(EPOCH_NS + 5_001, 1_234)
    sample.kernel(
        EPOCH_NS + 7_000,
        10,
        REDUCE,
        stream=9,
        **{
            "registers per thread": 96, "shared memory": 512, "graph node id": 77, "graph id": 5,
            "Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 16384, "Out msg nelems": 16384,
            "Process Group Name": "0", "Group size": 2,
        },
    )  # fmt: skip
    sample.put("X", "gpu_memset", "Memset (Device)", 0, 7, EPOCH_NS + 8_000, 20, {"device": 0, "stream": 7, "bytes": 4})
    trace = read(kineto(sample))
    gpu = trace.gpu
    assert gpu_rows(trace) == [
        (GEMM, 7, EPOCH_NS + 5_001, 1_234),
        (REDUCE, 9, EPOCH_NS + 7_000, 10),
        ("Memset (Device)", 7, EPOCH_NS + 8_000, 20),
    ]
    assert gpu.end.tolist() == [EPOCH_NS + 6_235, EPOCH_NS + 7_010, EPOCH_NS + 8_020]
    assert gpu.kind.tolist() == [Kind.KERNEL, Kind.KERNEL, Kind.MEMSET]
    assert gpu.lanes == (Lane(0, 7), Lane(0, 9))
    assert gpu.stream.tolist() == [7, 9, 7]
    assert gpu.device.tolist() == [0, 0, 0]
    assert [gpu.nodes[number] for number in gpu.node.tolist()] == [None, Node(77, 5), None]
    assert [gpu.launches[number] for number in gpu.launch.tolist()] == [
        Launch((4, 1, 1), (128, 1, 1)),
        Launch((4, 1, 1), (128, 1, 1), 96, 512, None, Collective("allreduce", "BFloat16", 16384, 16384, "0", 2)),
        Launch(moved_bytes=4),
    ]
    assert gpu.correlation.tolist() == [1, 0, 0]
    assert trace.calls.correlation.tolist() == [1]
    assert names(trace.calls) == ["cudaLaunchKernel"]
    assert trace.calls.places == (Thread("41", "41"),)
    assert trace.calls.external.tolist() == [9]


def test_what_is_said_about_the_run() -> None:
    trace = read(kineto(typical()))
    assert (trace.rank, trace.world_size, trace.schema_version, trace.name) == (3, 8, 1, "sample")
    assert trace.base_time_ns == 1759449600 * 10**9
    device = trace.devices[0]
    assert (device.name, device.sms, device.compute, device.shared_memory_per_block_bytes) == (
        "NVIDIA B200", 148, (10, 0), 232448,
    )  # fmt: skip
    assert trace.process_names == {"41": "python3"}
    assert trace.window == (EPOCH_NS - 5000, EPOCH_NS - 5000 + 10**9)
    assert trace.counts == {
        "Trace": 1, "M": 1, "i": 1, "cpu_op": 40, "cuda_runtime": 40, "kernel": 48, "ac2g": 40, "gpu_memcpy": 8,
        "user_annotation": 8, "gpu_user_annotation": 8, "python_function": 8,
    }  # fmt: skip


def test_python_functions_are_kept_only_when_asked_for() -> None:
    assert read(kineto(typical())).python is None
    kept = read(kineto(typical()), python=True).python
    assert kept is not None
    assert names(kept) == ["run.py(3): <module>"] * 8
    assert kept.duration.tolist() == [9000] * 8


def test_rows_out_of_order_come_out_sorted_and_equal_starts_keep_their_order() -> None:
    sample = Sample()
    for start, name in ((300, "c"), (100, "a"), (200, "b"), (100, "a2")):
        sample.kernel(EPOCH_NS + start, 1, name, stream=start)
    assert names(read(kineto(sample)).gpu) == ["a", "a2", "b", "c"]


def test_a_trace_far_out_of_order_is_sorted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_SORT_WINDOW", 16)
    sample = Sample()
    count = 1000
    for number in range(count):
        sample.kernel(EPOCH_NS + (count - number) * 10, 5, "k" if number else "last")
    trace = read(kineto(sample))
    assert trace.gpu.start.tolist() == [EPOCH_NS + 10 * number for number in range(1, count + 1)]
    assert names(trace.gpu)[-1] == "last"


def test_a_gpu_row_without_arguments_takes_device_and_stream_from_process_and_thread() -> None:
    sample = Sample()
    sample.put("X", "kernel", "k", 2, "stream 17", EPOCH_NS, 5)
    assert read(kineto(sample)).gpu.lanes == (Lane(2, 17),)


def test_merged_ranks_are_kept_apart_by_the_label_in_front_of_the_process() -> None:
    sample = Sample()
    for rank in (0, 1):
        sample.put(
            "X",
            "kernel",
            "k",
            f"[TP{rank:02d}] {rank}",
            7,
            EPOCH_NS,
            5,
            {"device": rank, "stream": 7, "correlation": 4},
        )
        sample.put(
            "X", "cuda_runtime", "cudaLaunchKernel", f"[TP{rank:02d}] 4711", 4711, EPOCH_NS - 9, 5, {"correlation": 4}
        )
    trace = read(kineto(sample))
    assert trace.gpu.lanes == (Lane(0, 7, "[TP00]"), Lane(1, 7, "[TP01]"))
    assert trace.calls.places == (Thread("4711", "4711", "[TP00]"), Thread("4711", "4711", "[TP01]"))


def test_old_category_names_are_known() -> None:
    sample = Sample()
    sample.put("X", "Kernel", "k", 0, 7, EPOCH_NS, 5, {"device": 0, "stream": 7})
    sample.put("X", "Memcpy", "Memcpy DtoH", 0, 7, EPOCH_NS + 10, 5, {"device": 0, "stream": 7})
    sample.put("X", "Runtime", "cudaLaunchKernel", 1, 1, EPOCH_NS, 5, {"correlation": 1})
    sample.put("X", "Operator", "aten::add", 1, 1, EPOCH_NS, 5)
    trace = read(kineto(sample))
    assert trace.gpu.kind.tolist() == [Kind.KERNEL, Kind.MEMCPY]
    assert (len(trace.calls), len(trace.ops)) == (1, 1)


def test_a_list_in_the_arguments_may_look_like_two_events() -> None:
    sample = Sample()
    for number in range(30):
        sample.kernel(EPOCH_NS + number * 100, 5, 'f<"},{">', note=[{"ph": 1}, {"ph": 2}, {"ph": "},{"}])
    for layout in LAYOUTS.values():
        for block_bytes in (100, 333, 1 << 20):
            trace = read(layout(sample), block_bytes)
            assert names(trace.gpu) == ['f<"},{">'] * 30
            assert trace.repairs == ()


def test_events_may_follow_other_large_members_and_be_followed_by_them() -> None:
    sample = typical(6)
    sample.members["notes"] = [{"ph": "X", "cat": "kernel", "name": "not an event", "ts": 1, "dur": 1}] * 2000
    text = kineto(sample)
    after = text.replace(
        b'"traceName"', b'"more": ' + text[text.index(b"[{") : text.index(b"}],") + 2] + b', "traceName"'
    )
    for block_bytes in (700, 1 << 20):
        trace = read(after, block_bytes)
        assert len(trace.gpu) == 6 + 2 + 2
        assert trace.name == "sample"
        assert trace.repairs == ()


def test_an_empty_list_is_a_trace_without_rows() -> None:
    for text in (b'{"traceEvents": []}', b"[]", b' \n{"schemaVersion":1,"traceEvents":[ ] , "traceName": "x"}'):
        trace = read(text)
        assert (len(trace.gpu), trace.counts, trace.repairs) == (0, {}, ())


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "trace", "wrong.sqlite"])
def test_a_file_is_recognised_by_what_is_in_it(tmp_path: Path, name: str) -> None:
    text = kineto(typical())
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name == "wrong.sqlite" or name.endswith("gz") else text)
    trace = read_trace(path)
    assert everything(trace) == WHOLE
    assert trace.origin.compression == ("gzip" if name in ("t.json.gz", "wrong.sqlite") else "")
    assert trace.origin.text_bytes == len(text)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert everything(read_trace(write(tmp_path, b"\xef\xbb\xbf" + kineto(typical())))) == WHOLE
