"""What one rank holds of a tensor, and of a cache."""

from sublight.facts.tensors import Cache, Tensor
from sublight.facts.workload import Layout


def ways(tensor: Tensor, layout: Layout) -> int:
    """Over how many ranks a tensor is cut.

    Data-parallel attention keeps a request on its own ranks: attention is cut over tp/dp of them, and the shared expert
    not at all, because its tokens are there already; dense MLPs and lm_head stay cut over all.
    """
    if tensor.cut is None:
        return 1
    match tensor.part:
        case "attention":
            return layout.attention_tp
        case "shared":
            return layout.tp if layout.dp == 1 else 1
        case "experts":
            return layout.expert_tp
        case "router" | "replicated":
            return 1
        case _:
            return layout.tp


def shape_on_rank(tensor: Tensor, layout: Layout) -> tuple[int, ...]:
    """Shape of one tensor on the rank that holds the most of it: whole units, rounded up."""
    cut = tensor.cut
    if cut is None:
        return tensor.shape
    held = -(-cut.units // ways(tensor, layout))
    shape = list(tensor.shape)
    # A vector that belongs to a matrix cut by its output is cut likewise.
    axis = cut.axis if len(shape) > cut.axis else 0
    shape[axis] = shape[axis] // cut.units * held
    return tuple(shape)


def copies_on_rank(tensor: Tensor, layout: Layout) -> int:
    """How many copies a layer has on a rank: all but under expert parallelism, where experts are dealt out whole."""
    if tensor.part == "experts" and layout.ep > 1:
        return -(-tensor.copies // layout.ep)
    return tensor.copies


def heads_on_rank(heads: int, layout: Layout) -> int:
    """Attention or key-value heads on the rank with the most: at least one, and then several ranks hold the same."""
    return -(-heads // layout.attention_tp)


def cache_values_on_rank(cache: Cache, layout: Layout) -> int:
    """Cached values per token (or of the state) and layer on one rank. A latent or an index is whole on every rank."""
    return heads_on_rank(cache.heads, layout) * cache.values_per_head


def bytes_on_rank(tensor: Tensor, layout: Layout) -> float:
    """Bytes a rank holds of a tensor, all its layers and copies; nothing for a tied one."""
    if tensor.tied:
        return 0.0
    one = tensor.format.storage(shape_on_rank(tensor, layout)).total_bytes
    return one * copies_on_rank(tensor, layout) * max(1, len(tensor.layers))
