"""Shared memory of Triton tiles against what one block of the card may have: known before anything is run.

A default tile stands in the engine's source as a dictionary of constants. Triton keeps `num_stages - 1` tiles of both
operands in flight, so a tile of M x N x K takes (stages - 1) x (M + N) x K elements. Data-centre cards allow 227 KiB a
block, others 99 KiB, and a tile that is too large fails at the first call that picks it.
"""

import ast
from collections.abc import Iterable, Iterator

import msgspec

from sublight.audit.ladder import Proof
from sublight.audit.record import AuditFinding
from sublight.audit.source.tree import Module, Sources
from sublight.units import counted

_SIZES = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """Block sizes in elements, and how many stages are in flight; `where` it stands."""

    m: int
    n: int
    k: int
    stages: int
    where: str = ""

    def shared_memory_bytes(self, element_bytes: float) -> float:
        return max(self.stages - 1, 1) * (self.m + self.n) * self.k * element_bytes

    def most_stages(self, element_bytes: float, limit_bytes: float) -> int:
        """The largest number of stages that fits, 0 when not even two do."""
        return next(
            (
                stages
                for stages in range(self.stages, 1, -1)
                if msgspec.structs.replace(self, stages=stages).shared_memory_bytes(element_bytes) <= limit_bytes
            ),
            0,
        )

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k}, {counted(self.stages, 'stage')}"


def tiles(module: Module) -> Iterator[Tile]:
    """Every dictionary of the module that gives a whole tile in constants."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Dict):
            continue
        pairs = zip(node.keys, node.values, strict=True)
        numbers = {key.value: _number(value) for key, value in pairs if isinstance(key, ast.Constant)}
        values = {key: number for key, number in numbers.items() if number is not None}
        if all(size in values for size in _SIZES):
            m, n, k = (values[size] for size in _SIZES)
            yield Tile(m=m, n=n, k=k, stages=values.get("num_stages", 2), where=module.at(node))


def _number(node: ast.expr) -> int | None:
    """A constant; of a choice between two (by the kind of GPU) the larger one."""
    if isinstance(node, ast.IfExp):
        both = [number for number in (_number(node.body), _number(node.orelse)) if number is not None]
        return max(both, default=None)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def of_tiles(
    sources: Sources, modules: Iterable[str], element_bytes: float, limit_bytes: float, card: str
) -> Iterator[AuditFinding]:
    """Default tiles in these modules that one block of the card cannot hold."""
    for name in modules:
        module = sources.module(name)
        for tile in tiles(module) if module is not None and "BLOCK_SIZE_M" in module.text else ():
            wanted = tile.shared_memory_bytes(element_bytes)
            if wanted <= limit_bytes:
                continue
            fits = tile.most_stages(element_bytes, limit_bytes)
            smaller = (
                f"num_stages={fits} takes {_fitting(tile, fits, element_bytes):,.0f}"
                if fits
                else "no number of stages fits"
            )
            yield AuditFinding(
                level="warn",
                subject="Triton tile",
                text=(
                    f"a default tile of {tile} wants {wanted:,.0f} bytes of shared memory at {element_bytes:g} "
                    f"{'byte' if element_bytes == 1 else 'bytes'} an element, a block on {card} can have "
                    f"{limit_bytes:,.0f}: a call that picks it fails; {smaller}"
                ),
                proofs=(Proof("source", tile.where, str(tile)),),
                hint="a tuned configuration file for this card and these expert shapes",
            )


def _fitting(tile: Tile, stages: int, element_bytes: float) -> float:
    return msgspec.structs.replace(tile, stages=stages).shared_memory_bytes(element_bytes)
