"""Attention that selects keys: whether a backend does what the model's indexer is for."""

from sublight.audit.ladder import Proof
from sublight.audit.source.evaluate import Evaluator
from sublight.audit.source.values import Bound, Instance, Value, options

# The method by which a backend hands the model's indexer what it needs; with nothing the indexer selects no keys.
_INDEXED = "get_indexer_metadata"
EVERY_KEY = "attends to every key, where the model selects some"


def every_key(walk: Evaluator, made: Value, batch: Value) -> Proof | None:
    """Where a backend gives the model's indexer nothing; None where one that may be made does, or it is not known."""
    found: list[Proof] = []
    for backend in options(made):
        method = walk.attribute(backend, _INDEXED) if isinstance(backend, Instance) else None
        if not isinstance(method, Bound):
            return None
        outcome = walk.run(method, [0, batch], {})
        if outcome.value is not None or outcome.refusal is not None or outcome.gave_up:
            return None
        found.append(Proof("source", method.function.where, f"{method.function.qualified} gives nothing"))
    return found[0] if found else None
