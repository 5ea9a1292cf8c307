"""The measuring process: machine, weights, then for every number of tokens agreement first and times after it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import msgspec
import torch

from sublight.bench.answering import Done, Machine
from sublight.bench.ceilings import measure_ceilings
from sublight.bench.clocks import Timed
from sublight.bench.environment import seen
from sublight.bench.inputs import Inputs, cold_sets, hits, layer_bytes, random_experts, rotating
from sublight.bench.judge import Layer, Oracle, Verdict, dirty_memory, judge, modes_on, ready_for_time
from sublight.bench.kernels.job import Began, Compared, Job, Measured, Prepared, Refused, Said
from sublight.bench.peers import PEERS
from sublight.bench.peers.base import Candidate
from sublight.bench.peers.own import own_kernels, reference
from sublight.bench.protocol import StoppingRule, interleave, is_cold, rate_warning
from sublight.bench.record.kernels import Ceilings, Checked, Result, Shape
from sublight.bench.record.measurement import Environment, Measurement
from sublight.errors import BenchError, SublightError
from sublight.facts.workload import Routing
from sublight.kernels.numerics.formats import BLOCK_FORMATS
from sublight.kernels.problem import MoeProblem
from sublight.kernels.reference import Experts
from sublight.units import counted

_PLAIN_TOLERANCE = 3e-3  # bf16 weights: rounding of the output, and sums in another order
_DIRTY_BYTES = 256 << 20


@dataclass
class _Bench:
    """Everything that stays the same over the numbers of tokens."""

    job: Job
    device: torch.device
    environment: Environment
    ceilings: Ceilings
    experts: Experts
    say: Callable[[Said], None]
    layers: dict[str, Layer] = field(default_factory=dict)
    candidates: dict[str, Candidate] = field(default_factory=dict)


def work(job: Job, say: Callable[[Said], None]) -> None:
    """Do a job, saying what comes out as it comes. Raises SublightError where the machine or the job is at fault."""
    device = torch.device(job.device)
    torch.set_grad_enabled(False)  # as engines run: some dispatch their calls differently otherwise
    if device.type == "cpu":
        torch.set_num_threads(1)  # a rehearsal is no race, and others work on this machine
    say(Began("", 0, "asking the machine"))
    environment = seen(job.device)
    if device.type == "cuda":
        torch.cuda.set_device(0)
        device = torch.device("cuda", 0)
    say(Began("", 0, "measuring the ceilings of memory"))
    ceilings = measure_ceilings(device, environment.l2_bytes)
    say(Machine(environment, ceilings))
    say(Began("", 0, "making weights"))
    bench = _Bench(job, device, environment, ceilings, random_experts(job.problem, device, job.seed), say)
    for name in job.candidates:
        _prepare(bench, name)
    for tokens in job.tokens:
        _measure(bench, tokens)
    for tokens in job.sweep:
        _compare_only(bench, tokens)
    say(Done(seen(job.device)))


def find_candidate(name: str) -> Candidate:
    """One of ours, a registered peer, or "module:attribute". Raises UnknownNameError, BenchError."""
    ours = {c.name: c for c in [*own_kernels(), reference()]}
    if name in ours:
        return ours[name]
    if ":" not in name:
        found: Candidate = PEERS.load(name)
        return found
    module, _, attribute = name.partition(":")
    try:
        named: Candidate = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BenchError(f"the candidate {name}", str(error), "module:attribute of a `Candidate`") from None
    return named


def _prepare(bench: _Bench, name: str) -> None:
    """Bring the weights into a candidate's layout, for the most tokens it takes of those asked for."""
    candidate = find_candidate(name)
    bench.say(Began(name, 0, "preparing its weights"))
    asked = sorted({*bench.job.tokens, *bench.job.sweep})
    taken = [t for t in asked if not _refusal(bench, candidate, t)]
    if not taken:
        bench.say(Refused(name, _refusal(bench, candidate, asked[0])))
        return
    problem = msgspec.structs.replace(bench.job.problem, tokens=max(taken))
    try:
        _dirty(bench)
        bench.layers[name] = candidate.prepare(problem, bench.experts, bench.device)
        bench.candidates[name] = candidate
        bench.say(Prepared(name, candidate.words))
    except SublightError as error:
        bench.say(Refused(name, f"{error.asked}: {error.found}"))
    except torch.cuda.OutOfMemoryError:
        bench.say(Refused(name, "the GPU's memory does not hold its weights beside the others'"))
    _require_working_gpu(bench)


def _refusal(bench: _Bench, candidate: Candidate, tokens: int) -> str:
    if candidate.token_limit is not None and tokens > candidate.token_limit:
        return f"it takes {counted(candidate.token_limit, 'token')} at most"
    return candidate.refuses(msgspec.structs.replace(bench.job.problem, tokens=tokens), bench.device)


def _dirty(bench: _Bench) -> None:
    """On a GPU, what is allocated next lies where bytes that are no numbers were."""
    if bench.device.type == "cuda" and torch.cuda.mem_get_info(bench.device)[0] > 4 * _DIRTY_BYTES:
        dirty_memory(_DIRTY_BYTES, bench.device)


def _inputs(bench: _Bench, tokens: int) -> tuple[MoeProblem, list[Inputs]]:
    problem = msgspec.structs.replace(bench.job.problem, tokens=tokens)
    routing = Routing(bench.job.counts, "given") if bench.job.counts else None
    return problem, rotating(problem, bench.device, bench.job.seed, bench.environment.l2_bytes, routing)


def _judged(bench: _Bench, name: str, oracle: Oracle, problem: MoeProblem) -> Verdict:
    bench.say(Began(name, problem.tokens, "comparing it with the oracle"))
    _dirty(bench)
    tolerance = tolerance_of(bench.candidates[name], problem)
    verdict = judge(bench.layers[name], oracle, tolerance, modes_on(bench.device), str(problem))
    _require_working_gpu(bench)
    if "changed the weights" in verdict.reason:
        # The others are to be judged by the weights that they were prepared from.
        _restore(bench)
    return verdict


def _require_working_gpu(bench: _Bench) -> None:
    """After a fault of one kernel the GPU answers nobody in this process: it has to end, and its candidate is named."""
    if bench.device.type == "cuda":
        torch.cuda.synchronize(bench.device)


def tolerance_of(candidate: Candidate, problem: MoeProblem) -> float:
    """The candidate's own, or what a kernel of the weights' format may differ."""
    if candidate.tolerance is not None:
        return candidate.tolerance
    form = BLOCK_FORMATS.get(problem.weight_format)
    return _PLAIN_TOLERANCE if form is None else form.kernel_error


def _restore(bench: _Bench) -> None:
    fresh: Any = random_experts(bench.job.problem, bench.device, bench.job.seed)
    for mine, theirs in ((bench.experts.w13, fresh.w13), (bench.experts.w2, fresh.w2)):
        if isinstance(mine, torch.Tensor):
            mine.copy_(theirs)
            continue
        mine.codes.copy_(theirs.codes)
        mine.scales.view(torch.uint8).copy_(theirs.scales.view(torch.uint8))
        if mine.global_scale is not None:
            mine.global_scale.stored.copy_(theirs.global_scale.stored)


def _compare_only(bench: _Bench, tokens: int) -> None:
    problem, inputs = _inputs(bench, tokens)
    oracle = Oracle(bench.experts, inputs)
    for name, candidate in bench.candidates.items():
        if not _refusal(bench, candidate, tokens):
            verdict = _judged(bench, name, oracle, problem)
            bench.say(Compared(Checked(name=name, tokens=tokens, reason=verdict.reason)))


def _measure(bench: _Bench, tokens: int) -> None:
    """One shape: every candidate is judged, those that agree are timed in turns."""
    problem, inputs = _inputs(bench, tokens)
    oracle = Oracle(bench.experts, inputs)
    hit = hits(inputs)
    results: dict[str, Result] = {}
    verdicts: dict[str, Verdict] = {}
    timed: dict[str, Timed] = {}
    sizes: dict[str, float] = {}
    for name, candidate in bench.candidates.items():
        sizes[name] = layer_bytes(problem, hit, candidate.weight_format)
        reason = _refusal(bench, candidate, tokens)
        if not reason:
            verdicts[name] = _judged(bench, name, oracle, problem)
            reason = verdicts[name].reason
        if not reason:
            reason = _ready(bench, name, inputs, oracle, problem, timed)
        if reason:
            results[name] = Result(name=name, kind=candidate.kind, bytes=sizes[name], reason=reason)
    rule = StoppingRule(budget_s=bench.job.budget_s)
    calls = {name: t.calls * t.repeats for name, t in timed.items()}
    rounds = {name: _said_before(bench, Began(name, tokens, "timing it"), t.round) for name, t in timed.items()}
    for name, timing in interleave(rounds, calls, rule).items():
        agreed = verdicts[name].agreed
        assert agreed is not None
        sets = cold_sets(inputs)
        measurement = Measurement(
            agreed=agreed,
            clock=timed[name].clock,
            environment=bench.environment.key,
            timing=timing,
            sets=sets,
            cold=is_cold(sets, sizes[name], bench.environment.l2_bytes),
            warning=rate_warning(sizes[name], timing.median_s, bench.ceilings.best_bytes_per_s),
        )
        kind = bench.candidates[name].kind
        results[name] = Result(name=name, kind=kind, bytes=sizes[name], measurement=measurement)
    moved = layer_bytes(problem, hit)
    shape = Shape(
        tokens=tokens,
        experts_hit=hit,
        bytes=moved,
        copy_s=moved / bench.ceilings.copy_bytes_per_s,
        floor_s=bench.ceilings.floor_s(moved),
        routing=_routing_words(bench.job),
        results=tuple(results[name] for name in bench.candidates),
    )
    bench.say(Measured(shape))


def _said_before(bench: _Bench, began: Began, once: Callable[[], float]) -> Callable[[], float]:
    """A round that is announced first: if it hangs or takes the process down, it is known whose it was."""

    def run() -> float:
        bench.say(began)
        return once()

    return run


def _ready(
    bench: _Bench, name: str, inputs: list[Inputs], oracle: Oracle, problem: MoeProblem, timed: dict[str, Timed]
) -> str:
    """Make a candidate's calls ready and look at what those very calls give: "" or why they are not timed."""
    bench.say(Began(name, problem.tokens, "making it ready to be timed"))
    tolerance = tolerance_of(bench.candidates[name], problem)
    made: Timed | None
    try:
        made, wrong = ready_for_time(bench.job.clock, bench.layers[name], inputs, oracle, tolerance)
    except SublightError as error:
        return f"{error.asked}: {error.found}"
    except torch.cuda.OutOfMemoryError:
        return "the GPU's memory does not hold what it allocates"
    except Exception as error:  # a fault on the device ends the process below; anything else is an answer
        wrong, made = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}", None
    _require_working_gpu(bench)
    if made is not None and not wrong:
        timed[name] = made
    return wrong


def _routing_words(job: Job) -> str:
    if job.counts:
        return "by the histogram given"
    return f"uniform at random, seed {job.seed}; a call avoids experts that the cache may still hold"
