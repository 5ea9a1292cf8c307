"""Every launch of a step: outputs compared, then timed in a graph, weights cold."""

from collections.abc import Callable
from functools import partial

import msgspec
import torch

from sublight.bench.ceilings import measure_ceilings
from sublight.bench.clocks import ready
from sublight.bench.environment import seen
from sublight.bench.ops.plan import Launch, step_launches
from sublight.bench.ops.products import RING, Missing, Product, make
from sublight.bench.protocol import StoppingRule, interleave, is_cold, rate_warning, sets_needed
from sublight.bench.record.kernels import Ceilings
from sublight.bench.record.measurement import (
    MODE_OF,
    Agreed,
    ClockName,
    Environment,
    Measurement,
    clock_for,
)
from sublight.bench.record.ops import OpRow, OpsBench, Part
from sublight.errors import BenchError, SublightError
from sublight.facts.model import Model
from sublight.facts.workload import Workload, check_fit
from sublight.kernels.agreement import compare

# A norm's weights are 12 kB, and ten thousand of them take turns before a cache of 60 MB has let go of the first.
_MOST_SETS = 12_000
_MOST_BYTES = 8 << 30
_REHEARSED_SETS = 4
_FEWEST_SETS = 8


def bench_ops(
    model: Model,
    workload: Workload,
    *,
    device: str = "cuda",
    seed: int = 0,
    eager: bool = False,
    budget_s: float = 0.4,
    progress: Callable[[str], None] | None = None,
) -> OpsBench:
    """Time the rows of one decode step on one GPU, at the shapes of one rank.

    Args:
        eager: time calls one by one between CUDA events, instead of replays of a graph.
        budget_s: for the rounds of one launch.
        progress: told which row is at work.

    Raises:
        BenchError: no such device here.
        UsageError: a layout that the model cannot be cut into.
    """
    check_fit(model, workload)
    environment = seen(device)
    place = torch.device("cuda", 0) if device == "cuda" else torch.device(device)
    if device == "cpu":
        torch.set_num_threads(1)  # a rehearsal is no race
    say = progress or (lambda _: None)
    say("ceilings of memory")
    ceilings = measure_ceilings(place, environment.l2_bytes)
    bench = _Bench(place, environment, ceilings, seed, clock_for(device, eager), StoppingRule(budget_s=budget_s))
    rows = []
    for plan in step_launches(model, workload):
        say(plan.id)
        rows.append(OpRow(id=plan.id, parts=tuple(bench.part(launch, count) for launch, count in plan.launches)))
    last = seen(device)
    return OpsBench(
        environment=_with_clocks(environment, last),
        seed=seed,
        model=model.name,
        layout=str(workload.layout),
        tokens=workload.tokens,
        context=workload.context,
        kv_dtype=workload.kv_dtype,
        ceilings=ceilings,
        rows=tuple(rows),
    )


def _with_clocks(first: Environment, last: Environment) -> Environment:
    return msgspec.structs.replace(first, clocks_mhz=last.clocks_mhz, notes=last.notes)


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

    def part(self, launch: Launch, count: int) -> Part:
        """A launch with its time, or why there is none. What fails is an answer about this launch."""
        library, measurement, reason = "", None, ""
        try:
            product = make(launch, self.sets(launch), self.device, self.seed)
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
        return Part(
            what=launch.what,
            library=library,
            count=count,
            bytes=launch.bytes,
            measurement=measurement,
            reason=reason,
        )

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
