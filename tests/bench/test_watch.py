"""Candidates that hang or die are findings about themselves, and the others are measured all the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from sublight.bench.kernels.run import bench_kernels, chosen, rank_problem
from sublight.bench.ops.run import bench_ops
from sublight.bench.record.kernels import KernelBench
from sublight.bench.watch import watch
from sublight.errors import BenchError, UnknownNameError, UsageError
from sublight.facts.model import Model, read_model
from sublight.facts.workload import Layout, Workload
from tests.bench.models import write_tiny

CHEATS = "tests.bench.cheats"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return read_model(str(write_tiny(tmp_path)))


def measured(model: Model, *names: str, tokens: tuple[int, ...] = (1, 2), **options: float) -> KernelBench:
    names = tuple(f"{CHEATS}:{name}" for name in names)
    return bench_kernels(model, Layout(), tokens, device="cpu", candidates=names, budget_s=0.05, **options)  # type: ignore[arg-type]


def test_silence_and_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that says two things, one of them in two pieces, and then nothing more."""
    (tmp_path / "silent.py").write_text(
        "import sys, time\n"
        "with open(sys.argv[2], 'ab', buffering=0) as lines:\n"
        "    lines.write(open(sys.argv[1], 'rb').read() + b'\\nsec')\n"
        "    time.sleep(0.2)\n"
        "    lines.write(b'ond\\n')\n"
        "    time.sleep(3600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    heard: list[bytes] = []
    ended = watch("silent", b"first", 3.0, heard.append)
    assert heard == [b"first", b"second"]
    assert (ended.silent_s, ended.code, ended.reason) == (3.0, -9, "no answer within 3 s")


def test_a_process_that_leaves_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaves.py").write_text("import sys\nprint('what went wrong', file=sys.stderr)\nsys.exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ended = watch("leaves", b"", 60.0, lambda line: None)
    assert (ended.silent_s, ended.reason) == (None, "its process left with 3: what went wrong")


def test_the_measuring_process_ends_with_the_one_that_started_it() -> None:
    """Its input is closed before it has imported anything large."""
    argv = [sys.executable, "-c", "import sublight.bench.leave as w, time; w.leave_with_parent(); time.sleep(3600)"]
    assert subprocess.run(argv, stdin=subprocess.DEVNULL, timeout=60, check=False).returncode == 1


def test_a_process_that_ends_by_itself_does_so_in_peace() -> None:
    """With its input still open: the thread that waits for the input's end is in nobody's way."""
    argv = [sys.executable, "-c", "import sublight.bench.leave as w, sys; w.leave_with_parent(); sys.exit(7)"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None and process.stderr is not None
    try:
        assert process.wait(60) == 7
        assert process.stderr.read() == b""
    finally:
        process.stdin.close()
        process.stderr.close()


def test_without_torch_the_process_says_what_brings_it(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "torch.py").write_text("raise ImportError('no torch here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "none"))
    for run, asked in (
        (lambda: measured(tiny, "HONEST"), "measuring kernels"),
        (lambda: bench_ops(tiny, Workload(), device="cpu"), "timing the rows of a step"),
    ):
        with pytest.raises(BenchError) as caught:
            run()
        assert (caught.value.asked, caught.value.found) == (asked, "no torch here")
        assert caught.value.hint == "pip install 'sublight[kernels]', which brings torch"


def test_one_that_hangs_is_ended_and_the_others_go_on(tiny: Model) -> None:
    found = measured(tiny, "HONEST", "HANGS", limit_s=20.0)
    assert [s.tokens for s in found.shapes] == [1, 2]
    assert all(s.results[0].measurement is not None for s in found.shapes)
    hung = next(r for s in found.shapes for r in s.results if r.name.endswith("HANGS") and r.reason)
    assert "no answer within 20 s" in hung.reason
    assert "at 1 token:" in hung.reason
    assert found.absent[f"{CHEATS}:HANGS"].endswith("taken out of what followed")


def test_one_that_takes_its_process_with_it(tiny: Model) -> None:
    found = measured(tiny, "DIES", "HONEST", tokens=(2,))
    died = next(r for r in found.shapes[0].results if r.name.endswith("DIES"))
    assert died.reason == "comparing it with the oracle at 2 tokens: its process was ended by signal 9"
    assert next(r for r in found.shapes[0].results if r.name.endswith("HONEST")).measurement is not None


def test_one_that_fails_while_it_is_timed_is_named(tiny: Model) -> None:
    """Rounds of several take turns; which one it was is said before each."""
    found = measured(tiny, "HONEST", "DIES_LATE", tokens=(1,))
    honest, died = found.shapes[0].results
    assert honest.measurement is not None
    assert died.name.endswith("DIES_LATE")
    assert died.reason.startswith("timing it at 1 token: its process left with 1: ")
    assert "RuntimeError: CUDA error: an illegal memory access was encountered" in died.reason


def test_one_that_spoils_the_weights_does_not_spoil_the_others(tiny: Model) -> None:
    found = measured(tiny, "SPOILS", "HONEST", tokens=(1,))
    spoils, honest = found.shapes[0].results
    assert spoils.reason == "it changed the weights it was given"
    assert honest.measurement is not None


def test_numbers_of_tokens_that_are_only_compared(tiny: Model) -> None:
    names = (f"{CHEATS}:GAPS",)
    found = bench_kernels(tiny, Layout(), (4,), device="cpu", candidates=names, sweep=(4, 6, 8, 12), budget_s=0.05)
    assert {c.tokens: bool(c.reason) for c in found.swept} == {6: True, 8: False, 12: True}
    assert "output all zero" in next(c.reason for c in found.swept if c.tokens == 6)


def test_a_rehearsal_says_so(tiny: Model) -> None:
    found = measured(tiny, "HONEST", tokens=(1,))
    assert found.is_rehearsal
    taken = found.shapes[0].results[0].measurement
    assert taken is not None
    assert (taken.clock, taken.agreed.modes, taken.cold) == ("wall clock", ("eager",), None)
    assert found.environment.torch and found.environment.python


def test_none_that_can_run(tiny: Model) -> None:
    with pytest.raises(BenchError, match="REFUSES: 1 tokens are not for it"):
        measured(tiny, "REFUSES", tokens=(1,))


def test_no_gpu(tiny: Model) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(BenchError, match="sees no CUDA GPU"):
        bench_kernels(tiny, Layout(), (1,), device="cuda")


def test_names_and_numbers(tiny: Model) -> None:
    with pytest.raises(UnknownNameError) as error:
        chosen(("huming",), "cuda")
    assert error.value.near == ["humming"]
    assert {"decode", "humming", "sglang-marlin", "vllm-marlin", "torch-grouped-mm"} <= set(chosen((), "cuda"))
    assert "reference" in chosen((), "cpu") and "reference" not in chosen((), "cuda")
    with pytest.raises(UsageError, match="--tokens"):
        bench_kernels(tiny, Layout(), (0,), device="cpu")


def test_the_mean_load_of_an_expert_parallel_rank() -> None:
    glm = read_model("glm-5-nvfp4")
    shard, load = rank_problem(glm, Layout(tp=8), 4)
    assert (shard.num_experts, shard.intermediate_size, shard.top_k, load) == (256, 256, 8, "")
    local, load = rank_problem(glm, Layout(tp=8, ep=8), 4)
    assert (local.num_experts, local.intermediate_size, local.top_k, local.expert_ranks) == (32, 2048, 1, 1)
    assert load.startswith("at the mean load of an expert-parallel rank: 1 of its own experts")
