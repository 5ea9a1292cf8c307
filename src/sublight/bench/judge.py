"""Whether a kernel may be timed: its results are held against the oracle in ways that a wrong or cheating one fails.

| done | catches |
|---|---|
| outputs are filled with NaN before every call | results that were never written, or are left from an earlier call |
| inputs change between calls of one captured graph or one prepared layer, in place | results kept from the first call |
| a result is copied on the caller's stream, right after the call | work on a stream or thread that nobody waits for |
| on a GPU the stream is kept busy first | a kernel on another stream that would win the race by being short |
| the output is poisoned after the copy, and looked at again | writing after the call has returned |
| inputs and weights are compared with what they were | kernels that change what they read |
| tensors lie between bytes that are NaN | reading or writing over an edge: padded scales of stale memory |
| eager and captured calls are judged each by itself | kernels that are right in one of them |
| every row is compared by itself, experts differ | one expert skipped, or taken for all |
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sublight.bench.clocks import Call, Timed, capture, ready
from sublight.bench.inputs import GUARD_BYTES, Inputs, guarded, guarded_copy, guards_intact
from sublight.bench.record.measurement import Agreed, ClockName, Mode
from sublight.errors import SublightError
from sublight.kernels.agreement import compare
from sublight.kernels.numerics.quantised import Quantised
from sublight.kernels.reference import Experts, moe_forward

Layer = Callable[[Tensor, Tensor, Tensor, Tensor], object]
"""(x, ids, weights, out): a prepared layer."""
# How a call becomes what is repeated: itself, or the replay of a graph that it was captured into.
Modes = Mapping[Mode, Callable[[Call], Call]]
# Inputs by place: the third time the first are back, so that a kernel that alternates is caught too.
_ORDER = (0, 1, 0, 2)
_BUSY_CYCLES = 10_000_000  # of a GPU's clock: 5 ms, longer than any launch waits
_LATE_S = 0.02


@dataclass(frozen=True)
class Verdict:
    """An agreement, or the first reason against one."""

    agreed: Agreed | None
    reason: str = ""


class Oracle:
    """What inputs have to give, computed once for all candidates."""

    def __init__(self, experts: Experts, inputs: Sequence[Inputs]) -> None:
        self.experts = experts
        self.inputs = [inputs[i % len(inputs)] for i in range(min(3, max(1, len(inputs))))]
        self.expected = [moe_forward(i.x, i.ids, i.weights, experts) for i in self.inputs]
        self.fingerprints = _fingerprints(experts)


def eager_only(call: Call) -> Call:
    """The call itself."""
    return call


def modes_on(device: torch.device) -> Modes:
    """Every way in which calls are repeated there."""
    modes: dict[Mode, Callable[[Call], Call]] = {"eager": eager_only}
    if device.type == "cuda":
        modes["graph"] = lambda call: capture([call])
    return modes


def judge(run: Layer, oracle: Oracle, tolerance: float, modes: Modes, where: str) -> Verdict:
    """Run a layer in every mode and compare.

    Args:
        tolerance: on the relative error against the fp32 oracle, of the whole; twice it for any row.
        modes: name -> what makes a call repeatable: `eager_only`, `clocks.capture`.
        where: the shape and format, for the agreement.
    """
    worst, runs = 0.0, 0
    bench = _Bench(run, oracle, tolerance)
    for mode, make in modes.items():
        try:
            repeat = make(bench.call)
            for place in _ORDER:
                error, reason = bench.one(repeat, place % len(oracle.inputs))
                if reason:
                    return Verdict(None, f"{mode}: {reason}")
                worst, runs = max(worst, error), runs + 1
        except torch.cuda.OutOfMemoryError:
            return Verdict(None, f"{mode}: the GPU's memory does not hold it")
        except SublightError as error:
            return Verdict(None, f"{mode}: {error.asked}: {error.found}")
        except Exception as error:  # a candidate may raise anything; that is an answer about it
            return Verdict(None, f"{mode}: {type(error).__name__}: {_first_line(error)}")
    if _fingerprints(oracle.experts) != oracle.fingerprints:
        return Verdict(None, "it changed the weights it was given")
    agreed = Agreed(
        relative_error=worst,
        tolerance=tolerance,
        against="fp32 oracle from the same codes and scales",
        modes=tuple(modes),
        runs=runs,
        where=where,
    )
    return Verdict(agreed)


class _Bench:
    """One candidate's own buffers; what the oracle holds is out of its reach."""

    def __init__(self, run: Layer, oracle: Oracle, tolerance: float) -> None:
        first = oracle.inputs[0]
        self.oracle, self.tolerance = oracle, tolerance
        self.x, self.ids, self.weights = (guarded_copy(t) for t in (first.x, first.ids, first.weights))
        self.out = guarded(first.x.shape, first.x.dtype, first.x.device)
        self._run = run

    def call(self) -> object:
        return self._run(self.x, self.ids, self.weights, self.out)

    def one(self, repeat: Callable[[], object], place: int) -> tuple[float, str]:
        """(relative error, "") or (0, why not)."""
        given = self.oracle.inputs[place]
        _keep_busy(self.out.device)
        self.x.copy_(given.x)
        self.ids.copy_(given.ids)
        self.weights.copy_(given.weights)
        self.out.fill_(torch.nan)
        repeat()
        result = self.out.clone()
        # Poisoned in the order of the stream, before anybody waits: what comes later from elsewhere is seen below.
        self.out.fill_(torch.nan)
        _wait(self.out.device)
        agreement = compare(result, self.oracle.expected[place], self.tolerance)
        if not agreement.agrees:
            return 0.0, agreement.reason + self._why(repeat, place)
        time.sleep(_LATE_S)
        _wait(self.out.device)
        if not bool(self.out.isnan().all()):
            return 0.0, "it wrote its output after the call had returned"
        own = ((self.x, given.x, "x"), (self.ids, given.ids, "ids"), (self.weights, given.weights, "router weights"))
        for mine, theirs, name in own:
            if not torch.equal(mine, theirs):
                return 0.0, f"it changed its input ({name})"
        if not all(guards_intact(t) for t in (self.x, self.ids, self.weights, self.out)):
            return 0.0, "it wrote outside its tensors"
        error = agreement.relative_error
        assert error is not None
        return error, ""

    def _why(self, repeat: Callable[[], object], place: int) -> str:
        """Whether it would have agreed with zeros beyond the edges of its tensors."""
        tensors = [self.x, self.ids, self.weights, *_tensors(self.oracle.experts)]
        guards = [_guards(t) for t in tensors if _has_guards(t)]
        saved = [g.clone() for g in guards]
        try:
            for guard in guards:
                guard.zero_()
            self.out.fill_(torch.nan)
            repeat()
            _wait(self.out.device)
            if compare(self.out, self.oracle.expected[place], self.tolerance).agrees:
                return "; it agrees when memory beyond its tensors is zero, so it reads there"
        finally:
            for guard, old in zip(guards, saved, strict=True):
                guard.copy_(old)
        return ""


def ready_for_time(
    clock: ClockName, run: Layer, inputs: Sequence[Inputs], oracle: Oracle, tolerance: float
) -> tuple[Timed, str]:
    """Calls of a layer, made ready and run once: they, and "" or why those very calls are wrong.

    Raises what the layer raises, and BenchError as `ready` does.
    """
    outs = [torch.empty_like(i.x) for i in inputs]
    made = ready(clock, [partial(run, i.x, i.ids, i.weights, out) for i, out in zip(inputs, outs, strict=True)])
    return made, check_outputs(made.once, outs, oracle.expected, tolerance)


def check_outputs(replay: Call, outs: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> str:
    """The very calls that are timed, poisoned and run once: "" or why their outputs are wrong."""
    for out in outs:
        out.fill_(torch.nan)
    replay()
    if outs:
        _wait(outs[0].device)
    for number, (out, wanted) in enumerate(zip(outs, expected, strict=False)):
        agreement = compare(out, wanted, tolerance)
        if not agreement.agrees:
            return f"call {number} of those that are timed: {agreement.reason}"
    return ""


def dirty_memory(byte_count: int, device: torch.device) -> None:
    """Leave bytes that are no numbers where the next allocations will lie, as a server's memory is."""
    store = torch.full((byte_count,), 0xFF, dtype=torch.uint8, device=device)
    del store


def _tensors(experts: Experts) -> list[Tensor]:
    found: list[Tensor] = []
    for matrix in (experts.w13, experts.w2):
        if isinstance(matrix, Quantised):
            found += [matrix.codes, matrix.scales]
            found += [matrix.global_scale.stored] if matrix.global_scale is not None else []
        else:
            found.append(matrix)
    return found


def _fingerprints(experts: Experts) -> list[int]:
    """A sum of every tensor's bytes, weighted by place so that a swap shows. Read from the device once, at the end."""
    found = []
    for tensor in _tensors(experts):
        place: Tensor | None = None
        for part in tensor.reshape(tensor.shape[0], -1).view(torch.uint8):
            size = part.numel() // 4 * 4
            words = part[:size].view(torch.int32)
            if place is None:
                place = torch.arange(words.numel(), device=words.device, dtype=torch.int64) % 1021 + 1
            found.append((words * place).sum() + part[size:].sum())
    return [int(value) for value in torch.stack(found).tolist()]


def _has_guards(tensor: Tensor) -> bool:
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size() + 2 * GUARD_BYTES


def _guards(tensor: Tensor) -> Tensor:
    """Both stretches, as the two rows of a view."""
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    return whole.as_strided((2, GUARD_BYTES), (whole.numel() - GUARD_BYTES, 1))


def _keep_busy(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda._sleep(_BUSY_CYCLES)  # type: ignore[no-untyped-call]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else "no message"
