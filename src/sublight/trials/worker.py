"""The program of the trying process: one backend, called once, then compared, then timed.

It runs in the interpreter of the engine, which may have no Sublight: `attempt` hands it this very package. It needs
msgspec and torch there, which engines bring.
"""

import ctypes
import sys
import time
from contextlib import suppress

import msgspec
import torch

from sublight.bench.answering import Say, answer
from sublight.bench.ceilings import measure_ceilings
from sublight.bench.environment import seen
from sublight.bench.inputs import Inputs, cold_sets, guarded, hits, layer_bytes, random_experts, rotating
from sublight.bench.judge import Layer, Oracle, dirty_memory, judge, modes_on, ready_for_time
from sublight.bench.kernels.work import find_candidate, tolerance_of
from sublight.bench.peers.base import Candidate
from sublight.bench.protocol import StoppingRule, interleave, is_cold, rate_warning
from sublight.bench.record.kernels import Ceilings
from sublight.bench.record.measurement import Agreed, Environment, Measurement, clock_for
from sublight.errors import BenchError, SublightError
from sublight.kernels.problem import MoeProblem
from sublight.kernels.reference import Experts
from sublight.trials.job import (
    Began,
    Broke,
    Compared,
    Differs,
    Done,
    Executed,
    Found,
    Job,
    NotTimed,
    NotTried,
    Said,
    Timed,
    in_words,
)

STORE_BYTES = 512 << 20
"""Of each of two buffers that the limits of memory are measured over: all that a server may have left is not for us."""
_DIRTY_BYTES = 256 << 20
_BESIDE_BYTES = 2 * STORE_BYTES + _DIRTY_BYTES + (1 << 30)  # and what contexts, graphs and work spaces take
_COPIES = 3  # of a layer's weights: as in the checkpoint, in the kernel's layout, and on the way from one to the other
_BUDGET_S = 1.0
# Of an adapter that was written for another version: names that moved, arguments that changed.
_MISFITS = (ImportError, AttributeError, TypeError)


def main(job_file: str, lines_file: str) -> None:
    _end_with_parent()
    answer(Job, _work, job_file, lines_file)


def _work(job: Job, say: Say) -> None:
    _try(job, say)
    say(Done())


def _try(job: Job, say: Say) -> None:
    say(Began("looking at the machine", backends=False))
    device = torch.device(job.device)
    torch.set_grad_enabled(False)  # as engines run: some dispatch their calls differently otherwise
    try:
        environment = _environment(job, device)
        say(Found(environment))
        candidate = find_candidate(job.candidate)
        reason = candidate.refuses(job.problem, device)
        if reason:
            say(NotTried(reason))
            return
        _require_memory(job.problem, device)
        say(Began("making weights", backends=False))
        experts = random_experts(job.problem, device, job.seed)
    except SublightError as error:
        say(NotTried(f"{error.asked}: {error.found}", error.hint))
        return
    trial = _Trial(job, device, environment, candidate, experts, say)
    layer = trial.prepared()
    if layer is not None and trial.agrees(layer) and job.timed:
        trial.time(layer)


class _Trial:
    """One backend on one device."""

    def __init__(
        self, job: Job, device: torch.device, environment: Environment, candidate: Candidate, experts: Experts, say: Say
    ) -> None:
        self.job, self.device, self.environment = job, device, environment
        self.candidate, self.experts, self.say = candidate, experts, say
        self.tolerance = tolerance_of(candidate, job.problem)
        self.agreed: dict[int, Agreed] = {}

    def inputs(self, tokens: int) -> tuple[MoeProblem, list[Inputs]]:
        problem = msgspec.structs.replace(self.job.problem, tokens=tokens)
        return problem, rotating(problem, self.device, self.job.seed, self.environment.l2_bytes)

    def prepared(self) -> Layer | None:
        """The layer, called once; None, and why is said, where that was not to be had."""
        started = time.monotonic()
        tokens = self.job.tokens[0]
        self.say(Began("preparing its weights", backends=True))
        try:
            self._dirty()
            layer = self.candidate.prepare(self.job.problem, self.experts, self.device)
            self.say(Began(f"calling it with {in_words(tokens)}", backends=True))
            given = self.inputs(tokens)[1][0]
            out = guarded(given.x.shape, given.x.dtype, self.device)
            out.fill_(torch.nan)
            layer(given.x, given.ids, given.weights, out)
            self._wait()
        except Exception as error:  # a backend may raise anything; that is an answer about it
            self.say(_blamed(error))
            return None
        bad = int((~out.isfinite()).sum())
        if bad:
            self.say(Broke(f"{bad} of {out.numel()} values are NaN, infinite, or were never written"))
            return None
        self.say(Executed(tokens, time.monotonic() - started, self.candidate.words))
        return layer

    def agrees(self, layer: Layer) -> bool:
        """Whether it agrees with the oracle wherever that was asked, each time in every mode."""
        for tokens in self.job.tokens:
            self.say(Began(f"comparing it with the oracle at {in_words(tokens)}", backends=True))
            problem, inputs = self.inputs(tokens)
            self._dirty()
            verdict = judge(layer, Oracle(self.experts, inputs), self.tolerance, modes_on(self.device), str(problem))
            if verdict.agreed is None:
                self.say(Differs(tokens, verdict.reason))
                return False
            self.agreed[tokens] = verdict.agreed
            self.say(Compared(tokens, verdict.agreed))
        return True

    def time(self, layer: Layer) -> None:
        self.say(Began("measuring what memory gives here", backends=False))
        try:
            ceilings = measure_ceilings(self.device, self.environment.l2_bytes, STORE_BYTES)
            for tokens in self.job.timed:
                self.say(Began(f"timing it at {in_words(tokens)}", backends=True))
                self._time(layer, tokens, ceilings)
        except SublightError as error:
            self.say(NotTimed(f"{error.asked}: {error.found}"))
        except torch.cuda.OutOfMemoryError:
            self.say(NotTimed("the GPU's memory does not hold what timing takes"))

    def _time(self, layer: Layer, tokens: int, ceilings: Ceilings) -> None:
        """By the benchmark's protocol: many calls in one graph, rotating weights, the very calls looked at before."""
        problem, inputs = self.inputs(tokens)
        oracle = Oracle(self.experts, inputs)
        made, wrong = ready_for_time(clock_for(self.job.device), layer, inputs, oracle, self.tolerance)
        if wrong:
            self.say(NotTimed(wrong))
            return
        count = made.calls * made.repeats
        timing = interleave({"it": made.round}, {"it": count}, StoppingRule(budget_s=_BUDGET_S))["it"]
        moved = layer_bytes(problem, hits(inputs), self.candidate.weight_format)
        sets = cold_sets(inputs)
        measurement = Measurement(
            agreed=self.agreed[tokens],
            clock=made.clock,
            environment=self.environment.key,
            timing=timing,
            sets=sets,
            cold=is_cold(sets, moved, self.environment.l2_bytes),
            warning=rate_warning(moved, timing.median_s, ceilings.best_bytes_per_s),
        )
        self.say(Timed(tokens, moved, ceilings.floor_s(moved), measurement))

    def _dirty(self) -> None:
        if self.device.type == "cuda":
            dirty_memory(_DIRTY_BYTES, self.device)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _environment(job: Job, device: torch.device) -> Environment:
    """Of the device. Raises BenchError where there is no GPU, or another one than the trial is for."""
    environment = seen(job.device)
    if device.type == "cuda" and environment.card != job.gpu:
        raise BenchError(
            f"trying it on {job.gpu}",
            f"torch's first GPU is {environment.title}",
            "CUDA_VISIBLE_DEVICES with the number of the right one",
        )
    return environment


def _require_memory(problem: MoeProblem, device: torch.device) -> None:
    """Raises BenchError where the trial does not fit into what is free: it takes nothing away from a server."""
    if device.type != "cuda":
        return
    needed = _COPIES * layer_bytes(problem, problem.num_experts) + _BESIDE_BYTES
    free = torch.cuda.mem_get_info(device)[0]
    if free < needed:
        found = f"{free / 1e9:.1f} GB of its memory are free, and a layer of this shape needs {needed / 1e9:.1f} GB"
        raise BenchError("trying it on this GPU", found, "the same while no server holds the memory")


def _blamed(error: Exception) -> Said:
    """Whether the backend said no, or the way it is called does not fit it, or memory ran out under it."""
    cause = error.__cause__ if isinstance(error, SublightError) and error.__cause__ is not None else error
    lines = str(cause).strip().splitlines()
    said = f"{type(cause).__name__}: {lines[0][:300] if lines else 'no message'}"
    if isinstance(cause, torch.cuda.OutOfMemoryError):
        return NotTried("the GPU's memory does not hold it", "the same while no server holds the memory")
    if isinstance(cause, _MISFITS):
        return NotTried(f"Sublight's way to call it does not fit this version: {said}")
    return Broke(f"{error.asked}: {error.found}" if isinstance(error, SublightError) and cause is error else said)


def _end_with_parent() -> None:
    """Where the system can: a GPU is not held by a trial that nobody waits for."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
