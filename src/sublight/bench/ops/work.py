"""Every launch of a step: outputs compared, then timed in a graph, weights cold. This is the side with torch."""

from collections.abc import Callable
from functools import partial

import torch

from sublight.bench.answering import Done, Machine
from sublight.bench.ceilings import measure_ceilings
from sublight.bench.clocks import ready
from sublight.bench.environment import seen
from sublight.bench.ops.job import Began, OpsJob, Said, Timed
from sublight.bench.ops.plan import Launch
from sublight.bench.ops.products import RING, Maker, Missing, Product, make, makers
from sublight.bench.protocol import StoppingRule, interleave, is_cold, rate_warning, sets_needed
from sublight.bench.record.kernels import Ceilings
from sublight.bench.record.measurement import MODE_OF, Agreed, ClockName, Environment, Measurement
from sublight.errors import BenchError, SublightError
from sublight.kernels.agreement import compare

# A norm's weights are 12 kB, and ten thousand of them take turns before a cache of 60 MB has let go of the first.
_MOST_SETS = 12_000
_MOST_BYTES = 8 << 30
_REHEARSED_SETS = 4
_FEWEST_SETS = 8


def work(job: OpsJob, say: Callable[[Said], None]) -> None:
    """Do a job, saying what comes out as it comes. Raises SublightError where the machine is at fault."""
    say(Began(-1))
    environment = seen(job.device)
    place = torch.device("cuda", 0) if job.device == "cuda" else torch.device(job.device)
    if job.device == "cpu":
        torch.set_num_threads(1)  # a rehearsal is no race
    ceilings = measure_ceilings(place, environment.l2_bytes)
    say(Machine(environment, ceilings))
    bench = _Bench(place, environment, ceilings, job.seed, job.clock, StoppingRule(budget_s=job.budget_s))
    for number, launch in job.launches.items():
        say(Began(number))
        say(bench.timed(number, launch))
    say(Done(seen(job.device)))


class _Bench:
    def __init__(
        self,
        device: torch.device,
        environment: Environment,
        ceilings: Ceilings,
        seed: int,
        clock: ClockName,
        rule: StoppingRule,
    ) -> None:
        self.device, self.environment, self.ceilings = device, environment, ceilings
        self.seed, self.clock, self.rule = seed, clock, rule

    def timed(self, number: int, launch: Launch) -> Timed:
        """A launch by the fastest library that agrees, or why there is none."""
        tried = [self._by(number, launch, maker) for maker in makers(launch)]
        with_time = [(t.measurement.seconds, place) for place, t in enumerate(tried) if t.measurement is not None]
        if with_time:
            return tried[min(with_time)[1]]
        return tried[0]

    def _by(self, number: int, launch: Launch, maker: Maker) -> Timed:
        """By one library. What fails is an answer about this launch."""
        library, measurement, reason = "", None, ""
        try:
            product = make(launch, self.sets(launch), self.device, self.seed, maker)
            library = product.library
            measurement = self._measured(launch, product)
        except Missing as missing:
            reason = str(missing)
        except SublightError as error:
            reason = f"{error.asked}: {error.found}"
        except torch.cuda.OutOfMemoryError:
            reason = "the GPU's memory does not hold it"
        except (RuntimeError, ValueError) as error:  # torch refuses shapes and types in its own words
            reason = f"torch refuses it: {str(error).splitlines()[0][:200]}"
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return Timed(launch=number, library=library, measurement=measurement, reason=reason)

    def sets(self, launch: Launch) -> int:
        """Weights that take turns: twice the cache, as far as memory and a graph of calls allow."""
        if self.device.type != "cuda":
            return _REHEARSED_SETS
        each = max(launch.cold_bytes, 1.0)
        needed = sets_needed(each, self.environment.l2_bytes or 0)
        return max(2, min(max(needed, _FEWEST_SETS), _MOST_SETS, int(_MOST_BYTES // each)))

    def _measured(self, launch: Launch, product: Product) -> Measurement:
        worst, runs = _agree(partial(product.run, 0), product, [0], 0.0, 0)
        calls = [partial(product.run, i) for i in range(product.sets)]
        last = list(range(max(0, product.sets - RING), product.sets))
        timed = ready(self.clock, calls)
        # The very calls that are timed: the last of them are still in the ring of outputs.
        worst, runs = _agree(timed.once, product, last, worst, runs)
        name = launch.what
        timing = interleave({name: timed.round}, {name: timed.calls * timed.repeats}, self.rule)[name]
        agreed = Agreed(
            relative_error=worst,
            tolerance=product.tolerance,
            against="fp32 arithmetic on the same values",
            modes=("eager",) if MODE_OF[self.clock] == "eager" else ("eager", "graph"),
            runs=runs,
            where=name,
        )
        return Measurement(
            agreed=agreed,
            clock=self.clock,
            environment=self.environment.key,
            timing=timing,
            sets=product.sets,
            cold=is_cold(product.sets, launch.cold_bytes, self.environment.l2_bytes),
            warning=rate_warning(launch.bytes, timing.median_s, self.ceilings.best_bytes_per_s),
        )


def _agree(run: Callable[[], object], product: Product, sets: list[int], worst: float, runs: int) -> tuple[float, int]:
    """Poison the outputs of `sets`, run, compare: the worst error so far and the number of comparisons.

    Raises:
        BenchError: an output that does not agree.
    """
    for i in sets:
        out = product.out(i)
        out.fill_(torch.nan if out.is_floating_point() else -1)
    run()
    if product.out(sets[0]).device.type == "cuda":
        torch.cuda.synchronize()
    for i in sets:
        found = compare(product.out(i).float(), product.expected(i), product.tolerance)
        if found.relative_error is None or not found.agrees:
            raise BenchError(f"agreement of {product.library}", found.reason, "another version of torch")
        worst, runs = max(worst, found.relative_error), runs + 1
    return worst, runs
