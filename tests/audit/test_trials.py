"""Trials: made kernels that are right, wrong, silent or deadly, each in a process of another interpreter."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from sublight.audit.ladder import Answer, Proof, Rung, Step
from sublight.audit.scene import Trying
from sublight.bench.record.measurement import Agreed, Environment, Measurement, Timing
from sublight.errors import KernelError
from sublight.facts.workload import Layout
from sublight.kernels.problem import MoeProblem
from sublight.trials import cards, moe
from sublight.trials.answers import steps
from sublight.trials.attempt import attempt
from sublight.trials.cards import Chosen, of_answer
from sublight.trials.job import Began, Compared, Executed, Found, Job, NotTried, Outcome, Timed, outcome_of
from sublight.trials.moe import SGLANG_MARLIN, MoeTrial, problem_of
from tests.audit import machines
from tests.audit.adapters import with_torch
from tests.audit.scenes import installation, route, scene, target

P, F, Q = Answer.PASS, Answer.FAIL, Answer.NOT_KNOWN
PROBLEM = MoeProblem(tokens=17, hidden_size=64, intermediate_size=32, num_experts=4, top_k=2)
PROOF = Proof("trial", "made 1.0", "a made kernel")
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> machines.Environment:
    return with_torch(tmp_path_factory.mktemp("trials") / "env")


def job(way: str, **changes: object) -> Job:
    fields = {"tokens": (1, 3, 17), "timed": (1, 3), "gpu": "h200", "device": "cpu", **changes}
    return Job(candidate=f"made.ways:{way}", problem=PROBLEM, **fields)  # type: ignore[arg-type]


def tried(env: machines.Environment, way: str, limit_s: float = LIMIT_S, **changes: object) -> Outcome:
    return attempt(job(way, **changes), env.python, limit_s, {})


def rungs(outcome: Outcome, *, confirmed: bool = True) -> tuple[Step, Step, Step]:
    return steps(outcome, "h200", PROOF, "", confirmed=confirmed)


def test_a_good_kernel_is_compared_and_timed_by_the_protocol(env: machines.Environment) -> None:
    outcome = tried(env, "GOOD")
    assert [one.tokens for one in outcome.compared] == [1, 3, 17]
    assert all(one.agreed.modes == ("eager",) for one in outcome.compared)
    assert [one.tokens for one in outcome.timed] == [1, 3]
    for one in outcome.timed:
        assert one.measurement.clock == "wall clock"
        assert one.measurement.timing.rounds >= 7
        assert one.read_s > 0
    # 2 of 4 experts: 4.5 bits a value and 8 bytes above them for each matrix; input and output once.
    assert outcome.timed[0].bytes == 2 * ((64 * 64 + 64 * 32) * 0.5625 + 2 * 8) + 2 * 64 * 2
    executed, correct, fast = rungs(outcome)
    assert (executed.answer, correct.answer) == (P, P)
    assert executed.why.startswith(
        "a call with 1 token gave finite values of the right shape (loaded, prepared and called in "
    )
    assert correct.why.endswith("0.003 allowed, against the fp32 oracle from the same codes and scales, eager, with "
                                "1, 3, 17 tokens")  # fmt: skip
    # The times of a CPU are none of a GPU.
    assert (fast.answer, fast.why) == (Q, "not timed: a rehearsal on a CPU has no time of a GPU")


def test_a_slow_kernel_takes_as_long_as_it_takes(env: machines.Environment) -> None:
    outcome = tried(env, "SLOW", tokens=(1,), timed=(1,))
    (one,) = outcome.timed
    assert 0.02 <= one.measurement.seconds < 0.2


@pytest.mark.parametrize(
    ("way", "answers", "why"),
    [
        ("WRONG", (P, F, Q), "at 1 token: eager: relative error 0.0994, allowed 0.003; worst in row 0"),
        ("WRONG_AT_17", (P, F, Q), "at 17 tokens: eager: relative error"),
        ("NANS", (F, Q, Q), "calling it with 1 token: "),
        ("SILENT", (F, Q, Q), "calling it with 1 token: 64 of 64 values are NaN, infinite, or were never written"),
        ("SEGFAULTS", (F, Q, Q), "calling it with 1 token: its process was ended by SIGSEGV"),
        ("ABORTS_LATE", (P, F, Q), "comparing it with the oracle at 3 tokens: its process was ended by SIGABRT; it"),
        ("LEAVES", (F, Q, Q), "calling it with 1 token: its process left with exit code 3"),
        ("RAISES", (F, Q, Q), "preparing its weights: RuntimeError: CUDA error: no kernel image is available"),
        ("MISFITS", (Q, Q, Q), "not tried: Sublight's way to call it does not fit this version: TypeError: run() got"),
        ("MOVED", (Q, Q, Q), "not tried: Sublight's way to call it does not fit this version: ModuleNotFoundError: "),
        ("REFUSES", (Q, Q, Q), "not tried: its adapter is for SwiGLU"),
        ("ABSENT", (Q, Q, Q), "not tried: the candidate made.ways:ABSENT: "),
    ],
)
def test_what_a_kernel_does_is_a_finding_about_it(
    env: machines.Environment, way: str, answers: tuple[Answer, ...], why: str
) -> None:
    found = rungs(tried(env, way))
    assert tuple(step.answer for step in found) == answers
    first = next(step for step in found if step.answer is not P)
    assert first.why.startswith(why)
    assert first.answer is Q or first.hint == "another backend"


def test_a_disagreement_names_where_it_still_agrees(env: machines.Environment) -> None:
    found = rungs(tried(env, "WRONG_AT_17"))[1]
    assert "row 16 (1)" in found.why
    assert found.why.endswith("; it agrees at 1, 3")
    # An adapter that nobody has seen agreeing may be what is wrong.
    unsure = rungs(tried(env, "WRONG_AT_17"), confirmed=False)[1]
    assert unsure.answer is Q
    assert unsure.why.startswith(
        "Sublight's way to call it was never seen to agree on a GPU, so this may be its own fault: at 17 tokens: "
    )
    crashed = rungs(tried(env, "SEGFAULTS"), confirmed=False)[0]
    assert crashed.answer is Q
    assert crashed.why.endswith("its own fault: calling it with 1 token: its process was ended by SIGSEGV")
    assert rungs(tried(env, "GOOD", tokens=(1,), timed=()), confirmed=False)[1].answer is P


def test_a_hang_ends_with_the_limit_and_leaves_nothing(env: machines.Environment) -> None:
    started = time.monotonic()
    outcome = tried(env, "HANGS", limit_s=12.0)
    assert time.monotonic() - started < 20
    assert outcome.hung
    executed, correct, fast = rungs(outcome)
    assert (executed.answer, correct.answer, fast.answer) == (F, Q, Q)
    assert executed.why == "calling it with 1 token: no answer within 12 s"
    assert executed.hint == "--try-limit with more seconds, if it only compiles"
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if env.python.encode() in _bytes(path)]
    assert left == []


def test_an_interpreter_that_cannot_try_is_no_finding_about_a_backend(tmp_path: Path) -> None:
    bare = machines.Environment(tmp_path / "bare")
    found = rungs(attempt(job("GOOD"), bare.python, LIMIT_S, {}))
    assert {step.answer for step in found} == {Q}
    assert found[0].why == (
        "not tried: the engine's interpreter cannot load what a trial needs: No module named 'msgspec'"
    )
    assert found[0].hint == "msgspec and torch installed there"
    (bare.folder / "sitecustomize.py").write_text("import os; os.kill(os.getpid(), 9)\n")
    killed = rungs(attempt(job("GOOD"), bare.python, LIMIT_S, {}))[0]
    assert (killed.answer, killed.why) == (Q, "not tried: its process was ended by SIGKILL, before it began")
    (bare.folder / "sitecustomize.py").write_text(
        "import sys; sys.version_info = (3, 10, 4)\nsys.version = '3.10.4 x'\n"
    )
    old = rungs(attempt(job("GOOD"), bare.python, LIMIT_S, {}))[0]
    assert old.why == "not tried: the engine's Python is 3.10.4, and a trial needs 3.11"


def test_a_machine_without_a_gpu_says_so(env: machines.Environment) -> None:
    found = rungs(tried(env, "GOOD", device="cuda"))[0]
    assert found.answer is Q
    assert "sees no CUDA GPU" in found.why


def test_a_trial_takes_no_other_package_than_sublight_along(env: machines.Environment) -> None:
    """An interpreter's own Sublight is not taken for this one, and what lies beside ours is not importable there."""
    env.write({"sublight/__init__.py": "raise RuntimeError('another Sublight')\n"})
    try:
        assert rungs(tried(env, "GOOD", tokens=(1,), timed=()))[1].answer is P
    finally:
        (env.folder / "sublight" / "__init__.py").unlink()
        (env.folder / "sublight").rmdir()


# --- what is said of times of a GPU, from figures written here ---

H200 = Environment(device="cuda", title="NVIDIA H200", card="h200", target="sm_90", driver="580.1", torch="2.11.0")


def timed(tokens: int, seconds: float, read_s: float, byte_count: float = 21.26e6, warning: str = "") -> Timed:
    agreed = Agreed(
        relative_error=6e-3, tolerance=1.5e-2, against="fp32 oracle", modes=("eager", "graph"), runs=8, where="a layer"
    )
    timing = Timing(median_s=seconds, low_s=seconds, high_s=seconds * 1.01, rounds=9, calls=32, settled=True)
    measurement = Measurement(
        agreed=agreed,
        clock="CUDA graph replay",
        environment=H200.key,
        timing=timing,
        sets=13,
        cold=True,
        warning=warning,
    )
    return Timed(tokens, byte_count, read_s, measurement)


def seen(*times: Timed, ended: str = "", now: str = "timing it at 8 tokens", hung: bool = False) -> Outcome:
    return Outcome(
        now=Began(now, backends=True),
        environment=H200,
        executed=Executed(1, 3.2),
        compared=tuple(Compared(one.tokens, one.measurement.agreed) for one in times) or (_compared(),),
        timed=times,
        ended=ended,
        hung=hung,
    )


def _compared() -> Compared:
    return Compared(1, timed(1, 1e-5, 1e-5).measurement.agreed)


def test_times_are_shares_of_two_limits() -> None:
    """21.26 MB in 23.6 us are 901 GB/s: 18.8 % of 4.8 TB/s, and 28 % of a launch that reads them in 6.7 us."""
    fast = rungs(seen(timed(1, 23.6e-6, 6.7e-6), timed(8, 82e-6, 35.1e-6, 152.2e6)))[2]
    assert fast.answer is P
    assert fast.why == (
        "23.6 us at 1 token (900.8 GB/s; 19 % of the data sheet's limit, 28 % of one read-only launch here); "
        "82.0 us at 8 tokens (1,856 GB/s; 39 % of the data sheet's limit, 43 % of one read-only launch here); "
        "at least 25 % of one read-only launch, which is the bar"
    )
    assert [proof.where for proof in fast.proofs] == ["made 1.0", "1 token", "8 tokens"]
    assert fast.proofs[1].text == (
        "CUDA graph replay, 9 rounds of 32 calls, quartiles 1.0% apart, 13 sets of weights in turn"
    )


def test_one_slow_number_of_tokens_is_slow() -> None:
    fast = rungs(seen(timed(1, 23.6e-6, 6.7e-6), timed(8, 181.4e-6, 35.1e-6, 152.2e6)))[2]
    assert fast.answer is F
    assert fast.why.endswith("19 % of one read-only launch here); below 25 % of one read-only launch")
    assert fast.hint == "a backend that is made for such weights"


@pytest.mark.parametrize(
    ("outcome", "answer", "why"),
    [
        (seen(), Q, "not timed: no time was taken"),
        (seen(timed(1, 1e-6, 6.7e-6, warning="faster than memory allows, cache-hot")), Q, "not timed: faster than"),
        (seen(ended="no answer within 300 s", hung=True), Q, "not timed: timing it at 8 tokens: no answer within 300"),
        (seen(ended="its process was ended by SIGSEGV"), F, "timing it at 8 tokens: its process was ended by SIGSEGV"),
        (
            seen(ended="its process was ended by SIGKILL", now="measuring what memory gives here"),
            F,
            "measuring",
        ),
    ],
)
def test_no_time_is_given_where_there_is_none(outcome: Outcome, answer: Answer, why: str) -> None:
    if why == "measuring":  # ours, and no word against the backend
        outcome = msgspec.structs.replace(outcome, now=Began("measuring what memory gives here", backends=False))
        answer, why = Q, "not timed: measuring what memory gives here: its process was ended by SIGKILL"
    executed, correct, fast = rungs(outcome)
    assert (executed.answer, correct.answer, fast.answer) == (P, P, answer)
    assert fast.why.startswith(why)


def test_a_gpu_at_work_is_not_timed_on() -> None:
    found = steps(seen(), "h200", PROOF, "somebody is at work on this GPU (37 % of the time)", confirmed=True)
    assert found[2].why == "not timed: somebody is at work on this GPU (37 % of the time)"


# --- which card ---

TWO = "GPU-aa, NVIDIA H200, 0, 2000\nGPU-bb, NVIDIA H200, 0, 140000\nGPU-cc, NVIDIA H100 80GB HBM3, 0, 80000\n"


@pytest.mark.parametrize(
    ("text", "visible", "chosen"),
    [
        (TWO, None, Chosen({"CUDA_VISIBLE_DEVICES": "GPU-bb"})),
        (TWO.replace("0, 140000", "99, 140000"), None, Chosen({"CUDA_VISIBLE_DEVICES": "GPU-aa"})),
        (TWO, "0", Chosen()),
        (TWO.replace("0, 2000", "37, 2000"), "0,1", Chosen({}, "somebody is at work on this GPU (37 % of the time)")),
        (TWO.replace("0, 2000", "37, 2000"), "GPU-bb", Chosen()),
        ("GPU-aa, NVIDIA H200, 3, 140000\n", None, Chosen()),
        ("GPU-aa, NVIDIA H200, [N/A], [N/A]\n", None, Chosen()),
        ("NVIDIA-SMI has failed\n", None, Chosen()),
        (TWO, "", Chosen()),
    ],
)
def test_the_idle_card_with_most_free_memory_is_taken(text: str, visible: str | None, chosen: Chosen) -> None:
    assert of_answer(text, "h200", visible) == chosen


@pytest.mark.parametrize(("shares", "busy"), [("0", ""), ("40 0", ""), ("40 40", "somebody is at work on this GPU (4")])
def test_work_of_a_moment_is_looked_at_again(
    shares: str, busy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shares").write_text("\n".join(shares.split()) + "\n")
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\ncd {tmp_path}\nread share < shares\nsed -i 1d shares\necho "GPU-aa, NVIDIA H200, $share, 140000"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(cards, "AGAIN_S", 0.0)
    assert cards.choose("h200").busy.startswith(busy)
    assert cards.choose("h200").environment == {}
    assert (tmp_path / "shares").read_text() == ""


# --- from a target to a call ---


def test_the_problem_is_the_ranks_own_share() -> None:
    problem, load = problem_of(target(9, 0, gpu="h200"), "bf16")
    assert (problem.hidden_size, problem.intermediate_size, problem.num_experts, problem.top_k) == (6144, 256, 256, 8)
    assert (problem.weight_format, problem.activation_format, problem.activation) == ("nvfp4", "bf16", "swiglu")
    assert load == ""
    shared = target(9, 0, gpu="h200", layout=Layout(tp=8, ep=8))
    problem, load = problem_of(shared, "bf16")
    assert (problem.top_k, problem.expert_ranks, load) == (1, 1, "at the mean load of a rank, top 1")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"shape": None}, "the model is dense"),
        ({"expert_format": "AWQ INT4"}, "no small call is made in AWQ INT4"),
        ({"swiglu_limit": 7.0}, "no small call is made with silu, clamped at 7"),
        ({"activation": "gelu_pytorch_tanh"}, "no small call is made with gelu_pytorch_tanh"),
    ],
)
def test_what_no_oracle_computes_is_not_tried(changes: dict[str, object], found: str, tmp_path: Path) -> None:
    judged = target(9, 0, gpu="h200", **changes)
    with pytest.raises(KernelError, match=found):
        problem_of(judged, "bf16")
    made = scene(installation(), tmp_path, judged=judged, trying=Trying(sys.executable, 9.0))
    answers = SGLANG_MARLIN.steps(made, route(destination="x.moe_wna16_marlin_gemm"))
    assert {step.answer for step in answers} == {Q}
    assert [step.rung for step in answers] == [Rung.EXECUTED, Rung.CORRECT, Rung.FAST]
    assert found in answers[0].why


def test_names_that_lead_to_one_kernel_share_one_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = []

    def tried(job: Job, python: str, limit_s: float, environment: dict[str, str]) -> Outcome:
        jobs.append(job)
        return outcome_of([Began("looking", backends=False), Found(H200), NotTried("no", "try")], "", False)

    monkeypatch.setattr(moe, "attempt", tried)
    monkeypatch.setattr(moe, "_OUTCOMES", {})
    made = scene(installation(), tmp_path, judged=target(9, 0, gpu="h200"), trying=Trying("/env/bin/python", 9.0))
    trial = MoeTrial(candidate="x", ends=("run",), stands_for="as it is")
    first = trial.steps(made, route(destination="engine.moe.run"))
    assert trial.steps(made, route(destination="engine.moe.run")) == first
    assert len(jobs) == 1
    assert (jobs[0].tokens, jobs[0].timed, jobs[0].gpu) == ((1, 2, 3, 8, 17, 64), (1, 8), "h200")
    assert (first[0].why, first[0].hint) == ("not tried: no", "try")
    (proof,) = first[0].proofs
    assert proof.where == "engine, torch 2.11.0, driver 580.1, NVIDIA H200"
    assert proof.text == (
        "engine.moe.run through Sublight's adapter x (as it is): top 8 of 256 experts, 6144 -> 256 swiglu, nvfp4 "
        "weights, bf16 activations; random weights and routing, seed 0"
    )


def test_a_line_that_was_not_finished_is_no_word(env: machines.Environment) -> None:
    """Its writer was killed in the middle of it."""
    said = [Began("calling it with 1 token", backends=True)]
    outcome = outcome_of(said, "its process was ended by SIGKILL", False)
    assert outcome.now == said[0]
    assert rungs(outcome)[0].why == "calling it with 1 token: its process was ended by SIGKILL"
    assert outcome_of([], "", False).ended == "its process ended without a word"


def test_a_trial_ends_with_whoever_started_it(env: machines.Environment, tmp_path: Path) -> None:
    """Killed by a hand that lets nobody clean up, the auditing process leaves no kernel on a GPU."""
    started = tmp_path / "started"
    text = (
        "import msgspec, sys\n"
        "from sublight.trials.attempt import attempt\nfrom sublight.trials.job import Job\n"
        f"job = msgspec.json.decode({json.dumps(msgspec.json.encode(job('HANGS')).decode())}, type=Job)\n"
        f"attempt(job, {env.python!r}, 600.0, {{'STARTED': {str(started)!r}}})\n"
    )
    env.write({"sitecustomize.py": "import os\nopen(os.environ['STARTED'], 'w').write(str(os.getpid()))\n"})
    try:
        parent = subprocess.Popen([sys.executable, "-c", text], env=os.environ | {"TMPDIR": str(tmp_path)})
        _until(lambda: started.exists() and started.read_text())
        child = int(started.read_text())
        _until(lambda: "made" in _maps(child))
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        _until(lambda: not _alive(child))
    finally:
        (env.folder / "sitecustomize.py").unlink()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _maps(pid: int) -> str:
    """Which libraries it has; "made" once torch is there, when the worker has begun."""
    try:
        return "made" if "libtorch" in Path(f"/proc/{pid}/maps").read_text() else ""
    except OSError:
        return ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def _until(holds: object, limit_s: float = 40.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.1)
