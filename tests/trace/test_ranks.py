"""Several ranks: which file is which, what is missing, and how far their clocks are apart."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from sublight.errors import InputFileError
from sublight.trace.alignment import align, collective_times
from sublight.trace.events import Trace
from sublight.trace.ranks import read_ranks, trace_files
from sublight.trace.repairs import RepairKind

from .samples import EPOCH_NS, GEMM, REDUCE, Sample, found, kineto, read

US = 1000


def rank(
    number: int | None, *, late: int = 0, steps: range = range(10), world: int = 2, base: int = 0, jitter: int = 0
) -> Sample:
    """Per step a GEMM and two all-reduces, whose ends are the same on all ranks but for `late` ns."""
    rng = np.random.default_rng(number or 0)
    sample = Sample(members={"baseTimeNanoseconds": base})
    if number is not None:
        sample.members["distributedInfo"] = {"rank": number, "world_size": world}
    for step in steps:
        at = EPOCH_NS + step * 1000 * US + late + (int(rng.integers(-jitter, jitter + 1)) if jitter else 0)
        sample.kernel(at, (200 + 7 * (number or 0)) * US, GEMM)
        # Who is early waits: the start differs, the end does not. Steps are not equally long.
        for offset in (500 + step**2, 800):
            begin = at + (300 + 7 * (number or 0)) * US
            sample.kernel(
                begin, at + offset * US - begin, REDUCE, **{"In msg nelems": 4096, "Collective name": "allreduce"}
            )
    return sample


def files(folder: Path, samples: dict[str, Sample]) -> None:
    for name, sample in samples.items():
        text = kineto(sample)
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)


def test_a_folder_of_ranks(tmp_path: Path) -> None:
    files(tmp_path, {"b.json.gz": rank(0), "a.json": rank(1)})
    (tmp_path / "notes.txt").write_text("not a trace")
    ranks = read_ranks(tmp_path)
    assert [(r.number, Path(r.path).name, r.how) for r in ranks.ranks] == [
        (0, "b.json.gz", "distributedInfo"),
        (1, "a.json", "distributedInfo"),
    ]
    assert (ranks.missing, ranks.left_out) == ((), ())


def test_a_bad_file_is_named_and_left_out_and_its_rank_is_missing(tmp_path: Path) -> None:
    files(tmp_path, {f"rank{n}.json": rank(n, world=8) for n in range(8)})
    (tmp_path / "rank5.json").write_text('{"not": "a trace"}')
    ranks = read_ranks(tmp_path)
    assert [r.number for r in ranks.ranks] == [0, 1, 2, 3, 4, 6, 7]
    assert ranks.missing == (5,)
    assert Path(ranks.left_out[0].path).name == "rank5.json"
    assert "traceEvents" in ranks.left_out[0].reason


def test_a_late_file_that_is_cut_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    names = [f"1759449600-TP-{n}-DP-0-PP-0-EP-0.trace.json.gz" for n in range(3)]
    files(tmp_path, {name: rank(None) for name in names})
    packed = (tmp_path / names[1]).read_bytes()
    (tmp_path / names[1]).write_bytes(packed[: int(len(packed) * 0.6)])
    ranks = read_ranks(tmp_path)
    assert [(r.number, r.how) for r in ranks.ranks] == [(n, "the file name") for n in range(3)]
    assert [RepairKind.TRUNCATED in found(r.trace) for r in ranks.ranks] == [False, True, False]
    assert 0 < len(ranks.ranks[1].trace.gpu) < len(ranks.ranks[0].trace.gpu)


def test_a_rank_in_two_files_is_counted_once(tmp_path: Path) -> None:
    files(tmp_path, {"x1.json": rank(0), "x2.json": rank(1), "y1.json": rank(0), "y2.json": rank(1)})
    ranks = read_ranks(tmp_path)
    assert [Path(r.path).name for r in ranks.ranks] == ["x1.json", "x2.json"]
    assert [Path(left.path).name for left in ranks.left_out] == ["y1.json", "y2.json"]
    assert "rank 0 is in" in ranks.left_out[0].reason


def test_engines_side_by_side_that_all_say_rank_0_are_told_apart_by_name(tmp_path: Path) -> None:
    files(tmp_path, {f"dp{n}_pp0_tp0.json": rank(0, world=1) for n in range(3)})
    assert [(r.number, r.how) for r in read_ranks(tmp_path).ranks] == [(n, "the file name") for n in range(3)]


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (["run-rank0.json", "run-rank10.json", "run-rank2.json"], [0, 10, 2]),
        (["s-TP-0.json", "s-TP-1.json"], [0, 1]),
        (["TP-0-PP-0.json", "TP-0-PP-1.json", "TP-1-PP-0.json", "TP-1-PP-1.json"], [0, 2, 1, 3]),
        (["dp0_tp0.json", "dp0_tp1.json", "dp1_tp0.json", "dp1_tp1.json"], [0, 1, 2, 3]),
        (["a.json", "b.json"], [0, 1]),
    ],
)
def test_ranks_from_names(tmp_path: Path, names: list[str], numbers: list[int]) -> None:
    files(tmp_path, {name: rank(None) for name in names})
    assert {Path(r.path).name: r.number for r in read_ranks(tmp_path).ranks} == dict(zip(names, numbers, strict=True))


def test_a_pattern_a_list_and_one_file(tmp_path: Path) -> None:
    files(tmp_path, {"a.json": rank(0), "b.json": rank(1), "c.other": rank(2)})
    assert [r.number for r in read_ranks(f"{tmp_path}/*.json").ranks] == [0, 1]
    assert [r.number for r in read_ranks([tmp_path / "b.json", tmp_path / "c.other"]).ranks] == [1, 2]
    assert [r.number for r in read_ranks(tmp_path / "a.json").ranks] == [0]
    assert trace_files([tmp_path, tmp_path / "a.json"]) == [tmp_path / "a.json", tmp_path / "b.json"]


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="no file there is called"):
        read_ranks(tmp_path)
    with pytest.raises(InputFileError, match="no file fits"):
        read_ranks(f"{tmp_path}/*.json")
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(InputFileError, match="traceEvents"):
        read_ranks(tmp_path)


def clock(one: Sample, other: Sample) -> tuple[int, int, int]:
    found_clock = align(read(kineto(one)), read(kineto(other)))
    return found_clock.offset_ns, found_clock.spread_ns, found_clock.matched


def test_equal_clocks() -> None:
    assert clock(rank(0), rank(1)) == (0, 0, 20)


@pytest.mark.parametrize("late", [-5_000_000, -321, 1, 777_777, 3_000_000_000])
def test_a_late_clock_is_found_to_the_nanosecond(late: int) -> None:
    assert clock(rank(0), rank(1, late=late)) == (late, 0, 20)


def test_different_bases_count() -> None:
    # The clock of the other rank reads 5 ms less, and its base is 1 ms later: 4 ms apart.
    assert clock(rank(0), rank(1, late=-5_000_000, base=1_000_000)) == (-4_000_000, 0, 20)


def test_a_noisy_clock_says_how_noisy() -> None:
    offset, spread, matched = clock(rank(0), rank(1, late=10_000, jitter=400))
    assert abs(offset - 10_000) <= 400
    assert 0 < spread <= 400
    assert matched == 20


@pytest.mark.parametrize(
    ("first", "second"), [(range(10), range(2, 10)), (range(1, 10), range(10)), (range(3, 9), range(9))]
)
def test_profiles_that_start_apart_are_matched_with_a_shift(first: range, second: range) -> None:
    offset, spread, matched = clock(rank(0, steps=first), rank(1, steps=second, late=1234))
    assert (offset, spread, matched) == (1234, 0, 2 * len(set(first) & set(second)))


@pytest.mark.parametrize("apart", [1, 2, -3])
@pytest.mark.parametrize("late", [0, 1234, -250_000])
def test_equally_many_collectives_are_no_proof_that_profiles_begin_together(apart: int, late: int) -> None:
    first, second = range(5, 15), range(5 + apart, 15 + apart)
    one, other = read(kineto(rank(0, steps=first))), read(kineto(rank(1, steps=second, late=late)))
    found_clock = align(one, other)
    common = 2 * len(set(first) & set(second))
    assert (found_clock.offset_ns, found_clock.spread_ns, found_clock.matched) == (late, 0, common)
    assert found_clock.doubt == ""
    assert found_clock.how.endswith("; 1 of 1 kinds matched with a shift, as the profiles begin apart")


def even(start_us: int, steps: int = 10) -> Sample:
    """Steps that no clock could tell apart."""
    sample = Sample()
    for step in range(steps):
        sample.kernel(EPOCH_NS + (start_us + step * 1000) * US, 100 * US, REDUCE)
    return sample


def test_steps_all_alike_are_matched_by_the_clocks_where_they_agree() -> None:
    found_clock = align(read(kineto(even(0))), read(kineto(even(2030))))
    assert (found_clock.offset_ns, found_clock.matched, found_clock.doubt) == (30 * US, 8, "")


def test_steps_all_alike_are_matched_by_the_nearest_clocks_and_the_doubt_is_told() -> None:
    found_clock = align(read(kineto(even(0))), read(kineto(even(2300))))
    assert (found_clock.offset_ns, found_clock.matched) == (300 * US, 8)
    assert found_clock.doubt == (
        "the collectives recur so evenly that offsets 1.00 ms apart fit as well; taken was the smallest"
    )


def test_clocks_that_have_nothing_in_common_do_not_decide() -> None:
    hours = 7_200_000_000
    found_clock = align(read(kineto(even(0))), read(kineto(even(hours))))
    assert (found_clock.offset_ns, found_clock.matched) == (hours * US, 10)
    assert found_clock.doubt.endswith("taken was the one with the smallest shift")


def test_what_the_clocks_count_from_belongs_to_their_agreement() -> None:
    """Their times are 2030 us ahead, of which the bases explain 970 less than 3 steps: the clocks agree, or do not."""
    one, agrees, other = even(0), even(2030), even(2000)
    agrees.members["baseTimeNanoseconds"] = one.members["baseTimeNanoseconds"] + 970 * US
    found_clock = align(read(kineto(one)), read(kineto(agrees)))
    assert (found_clock.offset_ns, found_clock.matched, found_clock.doubt) == (0, 7, "")
    other.members["baseTimeNanoseconds"] = one.members["baseTimeNanoseconds"] + 300 * US
    found_clock = align(read(kineto(one)), read(kineto(other)))
    assert (found_clock.offset_ns, found_clock.matched) == (300 * US, 8)
    assert found_clock.doubt.endswith("offsets 1.00 ms apart fit as well; taken was the smallest")


def test_of_unrelated_clocks_the_smallest_shift_is_taken_not_the_best_fit() -> None:
    """Ends that wander by nanoseconds look a little more alike one step on, which is chance."""
    wander = [0, 40, 10, 60, 20, 50, 0, 30, 60, 10, 40]
    one, other = Sample(), Sample()
    for step in range(10):
        one.kernel(EPOCH_NS + step * 1000 * US + wander[step], 100 * US, REDUCE)
        other.kernel(EPOCH_NS + 7_200_000_000 * US + step * 1000 * US + wander[step + 1], 100 * US, REDUCE)
    found_clock = align(read(kineto(one)), read(kineto(other)))
    assert found_clock.matched == 10
    assert abs(found_clock.offset_ns - 7_200_000_000 * US) < 60


def test_a_shift_that_the_counts_do_not_ask_for_is_taken_where_it_fits_far_better() -> None:
    """Ends are noisy by up to 1 us; matched by count alone, they differ by 7, at clocks that would agree better."""
    one, other = rank(0, steps=range(5, 15)), rank(1, steps=range(6, 16), late=-700 * US, jitter=1000)
    offset, _, matched = clock(one, other)
    assert matched == 18
    assert abs(offset + 700 * US) <= 1000


def test_one_collective_that_can_not_be_is_told_where_another_shift_has_none() -> None:
    """The first all-reduce of one rank ends before the other's begins; one step on it has no partner."""
    one, other = even(0), even(1000, steps=9)
    other.kernel(EPOCH_NS - 500 * US, 100 * US, REDUCE)
    found_clock = align(read(kineto(one)), read(kineto(other)))
    assert (found_clock.offset_ns, found_clock.matched) == (0, 10)
    assert found_clock.doubt == "in 1 of 10 collectives matched so, a rank left before another arrived"


def test_a_second_kind_that_recurs_evenly_follows_the_first() -> None:
    """Its own collectives fit at every shift; those of the first kind say which is right."""

    def both(late: int) -> Sample:
        sample = rank(0, late=late)
        for step in range(10):
            at = EPOCH_NS + step * 1000 * US + late
            sample.kernel(at + 900 * US, 10 * US, "ncclDevKernel_AllGather_RING_LL(x)")
        return sample

    assert clock(both(0), both(1234)) == (1234, 0, 30)


def test_a_few_collectives_are_not_shifted_by_chance() -> None:
    assert clock(rank(0, steps=range(1)), rank(1, steps=range(1), jitter=300))[2] == 2


def test_no_collective_in_common_is_said() -> None:
    alone = Sample()
    alone.kernel(EPOCH_NS, 5, GEMM)
    found_clock = align(read(kineto(rank(0))), read(kineto(alone)))
    assert (found_clock.offset_ns, found_clock.matched) == (0, 0)
    assert "no collective in common" in found_clock.how


def test_collectives_are_known_by_what_is_said_or_by_name() -> None:
    sample = Sample()
    sample.kernel(EPOCH_NS, 10, "my_kernel", **{"Collective name": "allgather", "In msg nelems": 7})
    sample.kernel(EPOCH_NS + 100, 10, "void allreduce_fusion_kernel_oneshot_lamport<8>(Params)")
    sample.kernel(EPOCH_NS + 200, 10, "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(RankData*)")
    sample.kernel(EPOCH_NS + 300, 10, GEMM)
    ends = {key: value.end.tolist() for key, value in collective_times(trace_of(sample)).items()}
    assert ends == {
        ("my_kernel", 7): [EPOCH_NS + 10],
        ("void allreduce_fusion_kernel_oneshot_lamport<8>(Params)", None): [EPOCH_NS + 110],
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(RankData*)", None): [EPOCH_NS + 210],
    }


def trace_of(sample: Sample) -> Trace:
    return read(kineto(sample))
