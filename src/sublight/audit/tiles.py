"""Shared memory of Triton tiles against what one block of the card may have: known before anything is run.

A default tile stands in the engine's source as a dictionary of constants. Triton keeps `num_stages - 1` tiles of both
operands in flight, so a tile of M x N x K takes (stages - 1) x (M + N) x K elements. Data-centre cards allow 227 KiB a
block, others 99 KiB, and a tile that is too large fails at the first call that picks it. Engines often keep a smaller
one for few rows: then prefill fails and decoding does not.
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
    """Block sizes in elements, and how many stages are in flight; `where` it stands.

    Attributes:
        rows: the test of the number of rows that it is taken by, as text; "" where it hangs on none that is seen.
        fewer: the tile that is taken for fewer rows, None where there is none.
    """

    m: int
    n: int
    k: int
    stages: int
    where: str = ""
    rows: str = ""
    fewer: "Tile | None" = None

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
    by_rows = dict(_by_rows(module))
    for node in ast.walk(module.tree):
        tile = _tile(module, node)
        if tile is not None:
            rows, fewer = by_rows.get(node, ("", None))
            yield msgspec.structs.replace(tile, rows=rows, fewer=fewer)


def _tile(module: Module, node: ast.AST | None) -> Tile | None:
    if not isinstance(node, ast.Dict):
        return None
    pairs = zip(node.keys, node.values, strict=True)
    numbers = {key.value: _number(value) for key, value in pairs if isinstance(key, ast.Constant)}
    values = {key: number for key, number in numbers.items() if number is not None}
    if not all(size in values for size in _SIZES):
        return None
    m, n, k = (values[size] for size in _SIZES)
    return Tile(m=m, n=n, k=k, stages=values.get("num_stages", 2), where=module.at(node))


def _by_rows(module: Module) -> Iterator[tuple[ast.AST, tuple[str, Tile | None]]]:
    """Tiles that a name is given for many rows, where a test of their number gives, or returns, another one for few."""
    blocks = (getattr(node, part, None) for node in ast.walk(module.tree) for part in ("body", "orelse"))
    for block in blocks:
        held: dict[str, ast.expr] = {}
        returned: tuple[str, Tile | None] | None = None
        for node in block if isinstance(block, list) else ():
            value = getattr(node, "value", None)
            if returned is not None and isinstance(value, ast.Dict):
                yield value, returned
            if isinstance(node, ast.If) and (few := _few(node.test)) is not None:
                inside, outside = _given(node.body), held | _given(node.orelse)
                for name in inside.keys() & outside.keys():
                    sides = (inside[name], outside[name])
                    small, large = sides if few[0] else sides[::-1]
                    yield large, (few[1], _tile(module, small))
                last = node.body[-1]
                if few[0] and isinstance(last, ast.Return) and (tile := _tile(module, last.value)) is not None:
                    returned = (few[1], tile)
            held |= _given([node])


def _given(block: list[ast.stmt]) -> dict[str, ast.expr]:
    """Dictionaries that statements of a block give to names."""
    return {
        target.id: node.value
        for node in block
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _few(test: ast.expr) -> tuple[bool, str] | None:
    """Whether a comparison holds for few rows, and the test that many pass; None for what compares no two sizes."""
    test = test.values[0] if isinstance(test, ast.BoolOp) else test
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name) or len(test.ops) != 1:
        return None
    left, right = test.left.id, ast.unparse(test.comparators[0])
    if isinstance(test.ops[0], ast.Lt | ast.LtE):
        return True, f"{left} {'>' if isinstance(test.ops[0], ast.LtE) else '>='} {right}"
    return (False, ast.unparse(test)) if isinstance(test.ops[0], ast.Gt | ast.GtE) else None


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
            element = f"{element_bytes:g} {'byte' if element_bytes == 1 else 'bytes'}"
            yield AuditFinding(
                level="warn",
                subject="Triton tile",
                text=(
                    f"a default tile of {tile} wants {wanted:,.0f} bytes of shared memory at {element} an element, "
                    f"a block on {card} can have {limit_bytes:,.0f}: {_who_fails(tile, element_bytes, limit_bytes)}; "
                    f"{smaller}"
                ),
                proofs=(Proof("source", tile.where, str(tile)),),
                hint="a tuned configuration file for this card and these expert shapes",
            )


def _who_fails(tile: Tile, element_bytes: float, limit_bytes: float) -> str:
    """Which calls pick a tile: where few rows get one that fits, prefill alone."""
    if tile.fewer is None:
        return "a call that picks it fails"
    takes = tile.fewer.shared_memory_bytes(element_bytes)
    fails = f"a call with {tile.rows} fails, which prefill is"
    return fails + (f"; decode rows fit, with {tile.fewer} at {takes:,.0f}" if takes <= limit_bytes else "")


def _fitting(tile: Tile, stages: int, element_bytes: float) -> float:
    return msgspec.structs.replace(tile, stages=stages).shared_memory_bytes(element_bytes)
