"""Attention that selects keys: whether a backend does what the model's indexer is for, and which kernels it takes."""

import ast
import re
from collections.abc import Mapping

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


_INNER = re.compile(r"\w+_(prefill|decode)_backend")


def kernels(made: Value, values: Mapping[str, Value]) -> str:
    """Options of their own by which a backend chooses its kernels, as they were settled; "" where it reads none."""
    classes = [cls for backend in options(made) if isinstance(backend, Instance) and backend.cls is not None
               for cls in backend.cls.line()]  # fmt: skip
    read = {node.attr for cls in classes for node in ast.walk(cls.node) if isinstance(node, ast.Attribute)}
    return " and ".join(
        f"--{name.replace('_', '-')} {value}"
        for name, value in sorted(values.items())
        if _INNER.fullmatch(name) and name in read and isinstance(value, str)
    )
