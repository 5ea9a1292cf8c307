"""Ways to run a collective: the library's, and torch's symmetric memory where it is offered."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import torch
import torch.distributed as dist
from torch import Tensor

CALLS = 20
"""Calls in a round, each with a buffer of its own: a layer's two, ten layers long."""
_ROUNDED = 3e-3


class Unavailable(Exception):  # noqa: N818 - no error: an answer about a way
    """Why a way is not offered here; it is the same on every rank."""


@dataclass(frozen=True, eq=False)
class Ways:
    """Calls of one collective.

    Attributes:
        calls: one a buffer.
        fill: give every buffer this rank's own values, and poison what is written.
        zero: leave zeros, which stay zeros however often they are added.
        error: the worst relative error of any call's result; NaN counts as infinite.
        tolerance: on it.
    """

    calls: list[Callable[[], object]]
    fill: Callable[[], None]
    zero: Callable[[], None]
    error: Callable[[], float]
    tolerance: float


def _values(size: int, rank: int, call: int, seed: int) -> Tensor:
    """What a rank sends in a call; every rank can compute every other's."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + rank * 1009 + call)
    return torch.randn(size, generator=generator).to(torch.bfloat16)


def _sum(size: int, call: int, seed: int) -> Tensor:
    ranks = range(dist.get_world_size())
    return torch.stack([_values(size, rank, call, seed).float() for rank in ranks]).sum(0)


def _apart(results: list[Tensor], expected: list[Tensor]) -> float:
    worst = 0.0
    for result, wanted in zip(results, expected, strict=True):
        error = float((result.float().cpu() - wanted).norm() / wanted.norm())
        worst = max(worst, error if error == error else float("inf"))  # noqa: PLR0124
    return worst


def _all_reduce(payload: int, device: torch.device, seed: int) -> Ways:
    size = max(1, payload // 2)
    buffers = [torch.zeros(size, dtype=torch.bfloat16, device=device) for _ in range(CALLS)]
    return Ways(
        calls=[lambda b=b: dist.all_reduce(b) for b in buffers],  # type: ignore[misc]
        fill=lambda: _fill(buffers, seed),
        zero=lambda: _zero(buffers),
        error=lambda: _apart(buffers, [_sum(size, call, seed) for call in range(CALLS)]),
        tolerance=_tolerance(),
    )


def _tolerance() -> float:
    """Each rank's addition rounds to bf16 once more."""
    return _ROUNDED * sqrt(dist.get_world_size())


def _fill(buffers: list[Tensor], seed: int) -> None:
    for call, buffer in enumerate(buffers):
        buffer.copy_(_values(buffer.numel(), dist.get_rank(), call, seed))


def _zero(buffers: list[Tensor]) -> None:
    for buffer in buffers:
        buffer.zero_()


def _all_gather(payload: int, device: torch.device, seed: int) -> Ways:
    size, count = max(1, payload // 2), dist.get_world_size()
    own = [torch.zeros(size, dtype=torch.bfloat16, device=device) for _ in range(CALLS)]
    whole = [torch.zeros(size * count, dtype=torch.bfloat16, device=device) for _ in range(CALLS)]

    def fill() -> None:
        _fill(own, seed)
        for buffer in whole:
            buffer.fill_(torch.nan)

    def expected(call: int) -> Tensor:
        return torch.cat([_values(size, rank, call, seed).float() for rank in range(count)])

    return Ways(
        calls=[
            lambda a=a, w=w: dist.all_gather_into_tensor(w, a)  # type: ignore[misc]
            for a, w in zip(own, whole, strict=True)
        ],
        fill=fill,
        zero=lambda: _zero(own),
        error=lambda: _apart(whole, [expected(call) for call in range(CALLS)]),
        tolerance=1e-9,
    )


def _reduce_scatter(payload: int, device: torch.device, seed: int) -> Ways:
    if device.type != "cuda":
        raise Unavailable("gloo has no reduce-scatter of tensors")
    size, count, rank = max(1, payload // 2), dist.get_world_size(), dist.get_rank()
    whole = [torch.zeros(size * count, dtype=torch.bfloat16, device=device) for _ in range(CALLS)]
    own = [torch.zeros(size, dtype=torch.bfloat16, device=device) for _ in range(CALLS)]

    def fill() -> None:
        _fill(whole, seed)
        for buffer in own:
            buffer.fill_(torch.nan)

    return Ways(
        calls=[
            lambda a=a, w=w: dist.reduce_scatter_tensor(a, w)  # type: ignore[misc]
            for a, w in zip(own, whole, strict=True)
        ],
        fill=fill,
        zero=lambda: _zero(whole),
        error=lambda: _apart(
            own, [_sum(size * count, call, seed)[rank * size : (rank + 1) * size] for call in range(CALLS)]
        ),
        tolerance=_tolerance(),
    )


def _symmetric(operation: str) -> Callable[[int, torch.device, int], Ways]:
    """An all-reduce through memory that every rank has mapped: one kernel, without NCCL."""

    def make(payload: int, device: torch.device, seed: int) -> Ways:
        if device.type != "cuda":
            raise Unavailable("symmetric memory is of GPUs")
        size = max(1, payload // 2)
        if size % 8:
            raise Unavailable("symmetric memory moves multiples of 16 bytes")
        try:
            import torch.distributed._symmetric_memory as symmetric

            operator = getattr(torch.ops.symm_mem, operation)
            buffers = [symmetric.empty(size, dtype=torch.bfloat16, device=device) for _ in range(CALLS)]
            world = dist.group.WORLD
            assert world is not None
            for buffer in buffers:
                symmetric.rendezvous(buffer, group=world)
        except (ImportError, AttributeError, RuntimeError) as error:
            raise Unavailable(f"torch offers none here: {str(error).splitlines()[0][:160]}") from None
        group = world.group_name
        results = list(buffers)

        def call(number: int) -> None:
            results[number] = operator(buffers[number], "sum", group)

        return Ways(
            calls=[lambda n=n: call(n) for n in range(CALLS)],  # type: ignore[misc]
            fill=lambda: _fill(buffers, seed),
            zero=lambda: _zero(buffers),
            error=lambda: _apart(results, [_sum(size, c, seed) for c in range(CALLS)]),
            tolerance=_tolerance(),
        )

    return make


WAYS: dict[str, dict[str, Callable[[int, torch.device, int], Ways]]] = {
    "all-reduce": {
        "library": _all_reduce,
        "symmetric memory, one-shot": _symmetric("one_shot_all_reduce"),
        "symmetric memory, two-shot": _symmetric("two_shot_all_reduce_"),
    },
    "all-gather": {"library": _all_gather},
    "reduce-scatter": {"library": _reduce_scatter},
}
"""Operation -> ways; "library" is NCCL on GPUs and gloo on a CPU."""
