"""One guard around several imports: which of them fails, and what is switched off together with it for nothing."""

from collections.abc import Callable, Iterable, Iterator

from sublight.audit.ladder import Proof
from sublight.audit.record import AuditFinding
from sublight.audit.source.failing import explain
from sublight.audit.source.guards import Guard
from sublight.audit.source.imports import imports
from sublight.audit.source.tree import Sources


def of_guards(
    sources: Sources,
    modules: Iterable[str],
    packages: Iterable[str],
    available: Callable[[str], bool],
) -> Iterator[AuditFinding]:
    """Guards in these modules that one failing import trips while others behind them would succeed.

    Args:
        packages: top-level packages whose imports count.
        available: whether a package outside the sources is installed.
    """
    known = frozenset(packages)
    for name in dict.fromkeys(modules):
        module = sources.module(name)
        if module is None:
            continue
        guards: dict[str, Guard] = {}
        asked: dict[str, list[str]] = {}
        for found in imports(module, known):
            if found.guard is not None and len(found.guard.together) > 1:
                guards[found.guard.where] = found.guard
                asked.setdefault(found.guard.where, []).append(found.symbol)
        for where, symbols in asked.items():
            yield from _judged(sources, guards[where], symbols, available)


def _judged(
    sources: Sources, guard: Guard, symbols: list[str], available: Callable[[str], bool]
) -> Iterator[AuditFinding]:
    together = list(dict.fromkeys(symbols))
    failures = {symbol: failure for symbol in together if (failure := explain(sources, symbol, available)) is not None}
    if not failures or len(failures) == len(together):
        return
    symbol, failure = next(iter(failures.items()))
    flags = f", and {', '.join(guard.flags)}" if guard.flags else ""
    yield AuditFinding(
        level="warn",
        subject=guard.where,
        text=(
            f"{len(together) - len(failures)} of the {len(together)} imports under one guard succeed here, and all are "
            f"given up{flags}: {symbol} asks for {failure.missing}, which is not there"
        ),
        proofs=(*failure.chain[:4], Proof("source", guard.where, guard.on_failure)),
        hint=f"install what ships {failure.missing.partition('.')[0]}, or a guard of its own around that import",
    )
