"""An engine of a page: names, what each imports, and which cards it takes, all read from its source."""

import ast

from sublight.audit.engines.base import Declaration, Gate, Need, Pin, Route
from sublight.audit.ladder import Answer, Proof
from sublight.audit.source.tree import Module, Sources
from sublight.audit.target import Target

# name -> (symbol its kernel is imported as, capabilities it takes); None for one that ends at "sturdy".
SOURCE = """\
BACKENDS = {
    "sturdy": ("kernels.sturdy.run", [(9, 0), (12, 0)]),
    "picky": ("kernels.sturdy.run", [(10, 0)]),
    "rerouted": None,
    "deadly": ("kernels.deadly.run", [(12, 0)]),
    "lost": ("kernels.nowhere.run", [(12, 0)]),
}
"""


class Tiny:
    name = "tiny"
    package = "tiny"
    distributions = ("tiny-engine",)
    areas = ("moe",)
    folders = ("tiny",)
    variables = ("TINY_",)

    def declared(self, sources: Sources, area: str) -> tuple[Declaration, ...]:
        module, table = self._table(sources)
        return tuple(
            Declaration(area, name, f"--moe {name}", True, None, (Proof("source", module.at(node), name),))
            for name, (node, _) in table.items()
        )

    def route(self, sources: Sources, declaration: Declaration, target: Target) -> Route:
        module, table = self._table(sources)
        node, value = table[declaration.name]
        proof = Proof("source", module.at(node), module.line(node.lineno))
        if value is None:
            why = "accepted, but runs sturdy"
            return Route(
                answer=Answer.FAIL, why=why, destination="kernels.sturdy.run", proofs=(proof,), hint="--moe sturdy"
            )
        symbol, takes = value
        shown = tuple(f"{major}.{minor}" for major, minor in takes)
        answer = Answer.PASS if target.compute_capability in takes else Answer.FAIL
        return Route(
            answer=Answer.PASS,
            why="the table names it",
            destination=symbol,
            proofs=(proof,),
            needs=(Need(symbol, module.at(node), "lazy"),),
            gates=(Gate(answer, f"cc in {takes}", proof, shown),),
        )

    def auto(self, sources: Sources, area: str, target: Target) -> Route:
        return Route(answer=Answer.PASS, why="the first of the table", destination="kernels.sturdy.run")

    def pins(self, sources: Sources) -> tuple[Pin, ...]:
        return ()

    def known_variables(self, sources: Sources) -> frozenset[str] | None:
        return frozenset({"TINY_KNOWN"})

    def _table(self, sources: Sources) -> tuple[Module, dict]:
        module = sources.module("tiny.backends")
        assert module is not None
        (assigned,) = module.tree.body
        assert isinstance(assigned, ast.Assign)
        assert isinstance(assigned.value, ast.Dict)
        pairs = zip(assigned.value.keys, assigned.value.values, strict=True)
        return module, {key.value: (key, ast.literal_eval(value)) for key, value in pairs}


TINY = Tiny()
