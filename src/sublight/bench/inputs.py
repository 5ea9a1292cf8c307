"""Weights, routings and activations to measure with.

Codes are uniform random bits and block scales random: a kernel cannot know them from real ones, and no checkpoint is
read. Every tensor that a kernel is handed lies between two stretches of bytes that are not a number in any of its
types, so that whoever reads over an edge gets NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt

import torch
from torch import Tensor

from sublight.bench.protocol import sets_needed
from sublight.errors import BenchError
from sublight.facts.formats import get_format
from sublight.facts.workload import Routing
from sublight.kernels.numerics.formats import get_block_format
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.problem import MoeProblem
from sublight.kernels.reference import Experts
from sublight.units import counted

GUARD_BYTE = 0xFF
"""NaN in bf16, fp16, fp32, E4M3 and E8M0; minus one as an index."""
GUARD_BYTES = 4096
# One call of a layer should read gigabytes over a graph, and a graph of a few calls times their gaps as well.
_GRAPH_BYTES, _FEWEST_SETS, _MOST_SETS = 1 << 30, 4, 32


def guarded(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An empty tensor in the middle of `GUARD_BYTE`s; its own bytes are `GUARD_BYTE` too until somebody writes them."""
    size = prod(shape) * dtype.itemsize
    store = torch.full((size + 2 * GUARD_BYTES,), GUARD_BYTE, dtype=torch.uint8, device=device)
    return store[GUARD_BYTES : GUARD_BYTES + size].view(dtype).view(*shape)


def guarded_copy(values: Tensor) -> Tensor:
    """The same values between guards."""
    copy = guarded(values.shape, values.dtype, values.device)
    return copy.copy_(values)


def guards_intact(tensor: Tensor) -> bool:
    """Whether nobody wrote over the edges of a tensor made by `guarded`."""
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    return bool((whole[:GUARD_BYTES] == GUARD_BYTE).all() and (whole[-GUARD_BYTES:] == GUARD_BYTE).all())


@dataclass(frozen=True, eq=False)
class Inputs:
    """What one call of a layer reads besides its weights."""

    x: Tensor
    ids: Tensor
    weights: Tensor


def random_experts(problem: MoeProblem, device: torch.device, seed: int) -> Experts:
    """The weights of one rank's layer in the problem's format.

    Raises:
        BenchError: a format or a layer that nothing here makes weights for.
    """
    if problem.expert_bias:
        raise BenchError(f"weights for {problem}", "its experts have a bias", "a model without one")
    generator = torch.Generator(device=device).manual_seed(seed)
    w13 = _matrices(problem, problem.up_rows, problem.hidden_size, device, generator)
    w2 = _matrices(problem, problem.hidden_size, problem.intermediate_size, device, generator)
    return Experts(w13, w2, activation=problem.activation)


def _matrices(
    problem: MoeProblem, rows: int, columns: int, device: torch.device, generator: torch.Generator
) -> Quantised | Tensor:
    """A stack of matrices whose products keep the size of what goes in: entries of about 1/sqrt(columns)."""
    count = problem.num_experts
    if problem.weight_format == "bf16":
        plain = guarded((count, rows, columns), torch.bfloat16, device)
        for expert in plain:
            expert.normal_(0, 1 / sqrt(columns), generator=generator)
        return plain
    form = get_block_format(problem.weight_format)
    shape = (count, rows, columns)
    codes = guarded((count, rows, columns // form.codes_per_byte), form.code_dtype, device)
    scales = guarded(form.scale_shape(shape), form.scale_dtype, device)
    for expert in range(count):  # one at a time: no temporaries of the size of a layer
        _fill_codes(codes[expert], generator)
        _fill_scales(scales[expert], columns, form.has_global, generator)
    if not form.has_global:
        return Quantised(form, codes, scales)
    # E2M1 codes are 3.0 on average (root mean square), block scales about one: what is left makes 1/sqrt(columns).
    above = (torch.rand(count, 1, device=device, generator=generator) * 0.2 + 0.9) / (3.5 * sqrt(columns))
    return Quantised(form, codes, scales, GlobalScale(guarded_copy(above)))


def _fill_codes(codes: Tensor, generator: torch.Generator) -> None:
    if codes.dtype == torch.uint8:
        codes.random_(0, 256, generator=generator)
        return
    codes.copy_(torch.randn(codes.shape, device=codes.device, generator=generator).clamp(-4, 4))


def _fill_scales(scales: Tensor, columns: int, has_global: bool, generator: torch.Generator) -> None:
    """Between a quarter and two; without a global scale above them, what makes 1/sqrt(columns) as well."""
    spread = torch.rand(scales.shape, device=scales.device, generator=generator) * 1.75 + 0.25
    if scales.dtype == torch.uint8:  # powers of two, biased by 127
        exponent = torch.log2(spread / (3.0 * sqrt(columns))).round() + 127
        scales.copy_(exponent.to(torch.uint8))
        return
    scales.copy_(spread if has_global else spread / sqrt(columns))


def layer_bytes(problem: MoeProblem, experts_hit: float, weight_format: str | None = None) -> float:
    """What one call has to move: codes and scales of the experts hit, the layer's input and output once in 16 bit."""
    form = get_format(weight_format or problem.weight_format)
    up = form.storage((problem.up_rows, problem.hidden_size)).total_bytes
    down = form.storage((problem.hidden_size, problem.intermediate_size)).total_bytes
    return experts_hit * (up + down) + 2 * problem.tokens * problem.hidden_size * 2


def rotating(
    problem: MoeProblem, device: torch.device, seed: int, l2_bytes: float | None, routing: Routing | None = None
) -> list[Inputs]:
    """Inputs for calls that follow one another, each with its own routing.

    Experts of a call are drawn from those that the calls before it did not read, as far back as the cache reaches, so
    that their weights come from memory. Where that would leave less than a quarter of the experts, fewer calls are
    looked back on, and `cold_sets` says so.
    """
    generator = torch.Generator().manual_seed(seed + problem.tokens)
    each = layer_bytes(problem, expected_hits(problem))
    most = _MOST_SETS if device.type == "cuda" else _FEWEST_SETS
    sets = max(_FEWEST_SETS, min(most, round(_GRAPH_BYTES / each)))
    apart = sets_needed(each, l2_bytes or 0.0) - 1
    chance = _chances(problem, routing)
    found: list[Inputs] = []
    recent: list[set[int]] = []
    for _ in range(sets):
        avoid = _avoided(recent, apart, sets, problem)
        ids = _draw(problem, chance, avoid, generator)
        recent.append(_experts(ids))
        weights = torch.rand(ids.shape, generator=generator) + 0.1
        weights = weights / weights.sum(1, keepdim=True)
        x = torch.randn(problem.tokens, problem.hidden_size, generator=generator).to(torch.bfloat16)
        found.append(
            Inputs(
                guarded_copy(x.to(device)),
                guarded_copy(ids.to(torch.int32).to(device)),
                guarded_copy(weights.float().to(device)),
            )
        )
    return found


def expected_hits(problem: MoeProblem) -> float:
    """Different experts of one call under uniform routing."""
    everyone = problem.num_experts * problem.expert_ranks
    missed = (1 - problem.top_k / everyone) ** problem.tokens
    return problem.num_experts * (1 - missed)


def _experts(ids: Tensor) -> set[int]:
    """Those of this rank that a call reads."""
    return {number for number in set(ids.flatten().tolist()) if number >= 0}


def hits(inputs: Sequence[Inputs]) -> float:
    """Different experts of a call, on average."""
    return sum(len(_experts(i.ids)) for i in inputs) / len(inputs)


def cold_sets(inputs: Sequence[Inputs]) -> int:
    """Calls after which an expert is read again, at the least: how many sets of weights take turns."""
    read = [_experts(i.ids) for i in inputs]
    last: dict[int, int] = {}
    nearest = len(inputs)
    for turn in range(2 * len(inputs)):  # the sequence repeats itself, so its end meets its beginning
        for expert in read[turn % len(read)]:
            nearest = min(nearest, turn - last.get(expert, turn - len(inputs)))
            last[expert] = turn
    return nearest


def _chances(problem: MoeProblem, routing: Routing | None) -> Tensor:
    """How likely each of all experts is, this rank's first ones first."""
    everyone = problem.num_experts * problem.expert_ranks
    if routing is None or routing.is_uniform:
        return torch.ones(everyone)
    if len(routing.counts) != everyone:
        found = f"it has {counted(len(routing.counts), 'count')} for {counted(everyone, 'expert')}"
        raise BenchError("the expert histogram", found, "one count an expert")
    return torch.tensor(routing.counts)


def _avoided(recent: list[set[int]], apart: int, sets: int, problem: MoeProblem) -> set[int]:
    """Experts of the last `apart` calls, and of the first ones where the sequence is about to begin again.

    Fewer calls are looked back on where a quarter of the experts would not stay free.
    """
    here = len(recent)
    for back in range(apart, 0, -1):
        near = recent[-back:] + [recent[here + k - sets] for k in range(1, back + 1) if 0 <= here + k - sets < here]
        avoid = set().union(*near)
        if len(avoid) <= problem.num_experts * 3 // 4:
            return avoid
    return set()


def _draw(problem: MoeProblem, chance: Tensor, avoid: set[int], generator: torch.Generator) -> Tensor:
    """[tokens, top_k] different experts a token; those of other ranks become -1, as engines mark them."""
    allowed = chance.clone()
    if avoid:
        allowed[list(avoid)] = 0
    if int((allowed > 0).sum()) < problem.top_k:
        allowed = chance
    drawn = torch.multinomial(allowed.expand(problem.tokens, -1), problem.top_k, generator=generator)
    return torch.where(drawn < problem.num_experts, drawn, -1)
