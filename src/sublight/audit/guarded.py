"""One guard around several imports: which of them fails, and what is switched off together with it for nothing."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from sublight.audit.ladder import Proof
from sublight.audit.record import AuditFinding
from sublight.audit.replies import Imported
from sublight.audit.source.imports import imports
from sublight.audit.source.tree import Sources


class Together(msgspec.Struct, frozen=True):
    """Symbols under one guard, where it stands, and what the code goes on with when one of them fails."""

    where: str
    on_failure: str
    symbols: tuple[str, ...]
    flags: tuple[str, ...] = ()


def guards(sources: Sources, modules: Iterable[str], symbols: Iterable[str]) -> tuple[Together, ...]:
    """Guards in these modules over more than one import, of which one at least is among `symbols`."""
    wanted = frozenset(symbols)
    packages = {symbol.partition(".")[0] for symbol in wanted}
    found: dict[str, Together] = {}
    for name in dict.fromkeys(modules):
        module = sources.module(name)
        for item in imports(module, packages) if module is not None else ():
            if item.guard is not None and item.kind in ("from", "import") and not item.symbol.endswith("*"):
                before = found.get(item.guard.where)
                together = (*(before.symbols if before else ()), item.symbol)
                flags = item.guard.flags
                found[item.guard.where] = Together(item.guard.where, item.guard.on_failure, together, flags)
    distinct = [msgspec.structs.replace(each, symbols=tuple(dict.fromkeys(each.symbols))) for each in found.values()]
    return tuple(each for each in distinct if len(each.symbols) > 1 and wanted.intersection(each.symbols))


def of_guards(found: Iterable[Together], imported: Mapping[str, Imported]) -> Iterator[AuditFinding]:
    """Guards that one failing import trips while others under them succeed."""
    for guard in found:
        tried = {symbol: imported[symbol] for symbol in guard.symbols if symbol in imported}
        failed = {symbol: done for symbol, done in tried.items() if done.is_import_error}
        fine = sum(done.outcome == "found" for done in tried.values())
        if not failed or not fine:
            continue
        symbol, done = next(iter(failed.items()))
        flags = f", and {', '.join(guard.flags)}" if guard.flags else ""
        yield AuditFinding(
            level="warn",
            subject=guard.where,
            text=(
                f"{fine} of the {len(tried)} imports under one guard succeed here, and all are "
                f"given up{flags}: {symbol} fails with {done.message}"
            ),
            proofs=(
                *(Proof("import", frame, done.message) for frame in done.frames[-1:]),
                Proof("source", guard.where, guard.on_failure),
            ),
            hint=_hint(done),
        )


def _hint(done: Imported) -> str:
    missing = done.message.rpartition("No module named ")[2].strip("'\"") if "No module named" in done.message else ""
    apart = "a guard of its own around that import"
    return f"install what ships {missing.partition('.')[0]}, or {apart}" if missing else apart
