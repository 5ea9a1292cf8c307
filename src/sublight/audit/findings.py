"""Findings: what is odd about an installation, whichever backend is asked for."""

from collections.abc import Iterator

from sublight.audit.installation import Installation
from sublight.audit.installed import clash_text
from sublight.audit.ladder import Proof
from sublight.audit.record import AuditFinding
from sublight.audit.replies import Imported, Objects, Tool
from sublight.audit.toolchain import missing_libraries
from sublight.units import counted


def of_installation(installation: Installation) -> Iterator[AuditFinding]:
    """Broken metadata, distributions that claim each other's files, code that .pth files run at every start."""
    for distribution in installation.found.distributions:
        if distribution.error:
            yield AuditFinding(
                level="warn",
                subject=str(distribution),
                text=f"its metadata is broken: {distribution.error}",
                proofs=(Proof("distribution", f"{distribution.folder}/{distribution.info}", distribution.error),),
                hint=f"pip install --force-reinstall --no-deps {distribution.name}",
            )
    for clash in installation.found.clashes:
        names = [name.rpartition(" ")[0] for name in clash.matches]
        yield AuditFinding(
            level="error",
            subject=" and ".join(names),
            text=clash_text(clash),
            proofs=tuple(Proof("file", path, "listed by both, with different hashes") for path in clash.examples),
            hint=f"pip uninstall {' '.join(names)}, then install the one that is wanted",
        )
    for added in installation.found.pth:
        if added.code and any(name in added.file for name in ("cutlass", "flashinfer", "sglang", "vllm", "sgl")):
            yield AuditFinding(
                level="info",
                subject=added.file.rpartition("/")[2],
                text="it runs code at every start of the interpreter, which puts packages on the path",
                proofs=(Proof("file", added.file, added.code[0]),),
            )


def of_toolchain(installation: Installation, judged: tuple[int, int] | None = None) -> Iterator[AuditFinding]:
    """Compilers of different releases, and an assembler of Triton's that does not know a card which the system's does.

    Args:
        judged: the compute capability that is judged for, besides those of the machine's own cards.
    """
    tools = installation.toolchain.tools if installation.toolchain else ()
    working = [tool for tool in tools if not tool.error]
    compilers = {tool.release: tool for tool in reversed([t for t in working if t.tool == "nvcc"])}
    if len(compilers) > 1:
        said = ", ".join(f"{tool.path} {release} ({tool.found_by[0]})" for release, tool in compilers.items())
        yield AuditFinding(
            level="warn",
            subject="nvcc",
            text=f"there are several, of different releases: {said}; which one builds depends on who calls",
            proofs=tuple(Proof("command", f"{tool.path} --version", release) for release, tool in compilers.items()),
            hint="CUDA_HOME with the one that is meant",
        )
    cards = installation.cards.best if installation.cards else ()
    wanted = {f"{major}{minor}" for major, minor in ((c.major, c.minor) for c in cards) if major is not None}
    wanted |= {f"{judged[0]}{judged[1]}"} if judged else set()
    yield from _assemblers(working, wanted)
    for tool in tools:
        if tool.error:
            yield AuditFinding(
                level="warn",
                subject=tool.tool,
                text=f"{tool.path} ({', '.join(tool.found_by)}) does not work: {tool.error}",
                hint=f"another place in {tool.found_by[0]}" if tool.found_by[0].isupper() else f"another {tool.tool}",
            )


def _assemblers(working: list[Tool], wanted: set[str]) -> Iterator[AuditFinding]:
    """Triton ships a second, newer assembler for Blackwell; what neither knows is out of its reach."""
    own = [tool for tool in working if "triton" in tool.found_by]
    lacking = sorted(number for number in wanted if not any(_knows(tool, number) for tool in own)) if own else []
    system = [tool for tool in working if tool.tool == "ptxas" and "triton" not in tool.found_by]
    newer = next((tool for tool in system if lacking and all(_knows(tool, number) for number in lacking)), None)
    if newer is None:
        return
    yield AuditFinding(
        level="warn",
        subject="ptxas",
        text=(
            f"Triton's own, release {own[-1].release}, does not know "
            f"{', '.join(f'sm_{number}' for number in lacking)}; {newer.path}, release {newer.release}, does"
        ),
        proofs=tuple(Proof("command", f"{tool.path} --version", f"release {tool.release}") for tool in (*own, newer)),
        hint=f"TRITON_PTXAS_PATH={newer.path}: Triton kernels and torch.compile need it",
    )


def _knows(tool: Tool, number: str) -> bool:
    return any(target.rstrip("af") == number for target in tool.targets)


def of_objects(distribution: str, objects: Objects, installation: Installation) -> Iterator[AuditFinding]:
    """Files that want a CUDA library of another major version, that cannot be read, or were too many."""
    wanted: dict[str, str] = {}
    paths: list[str] = []
    for found in objects.objects:
        missing = missing_libraries(found.needed, installation.toolchain)
        wanted |= missing
        paths += [found.path] if missing else []
    if wanted:
        said = [f"{name} ({f'there is {there}' if there else 'there is none'})" for name, there in wanted.items()]
        yield AuditFinding(
            level="error",
            subject=distribution,
            text=f"{counted(len(paths), 'of its libraries needs', 'of its libraries need')} what is not there: "
            + ", ".join(said),
            proofs=tuple(Proof("file", path, "DT_NEEDED") for path in paths[:3]),
            hint=f"a build of {distribution} for the CUDA version of this machine",
        )
    broken = [found for found in objects.objects if found.error]
    if broken:
        yield AuditFinding(
            level="warn",
            subject=distribution,
            text=f"{len(broken)} of its files could not be read as GPU code, the first: {broken[0].error}",
            proofs=tuple(Proof("file", found.path, found.error) for found in broken[:3]),
        )
    if objects.left_out:
        left = counted(objects.left_out, "of its files with GPU code was", "of its files with GPU code were")
        yield AuditFinding(
            level="warn",
            subject=distribution,
            text=f"{left} not looked at, for lack of time",
        )


def of_imports(imported: dict[str, Imported]) -> Iterator[AuditFinding]:
    """Failures inside packages that nobody was told of, and modules whose import ends or holds up its process."""
    told: dict[tuple[str, str], list[str]] = {}
    ended: dict[tuple[str, str], list[str]] = {}
    for symbol, done in imported.items():
        if done.outcome in ("crash", "hang", "exit"):
            ended.setdefault((done.inside or symbol, done.message), []).append(symbol)
        for swallowed in done.swallowed:
            if done.outcome == "found":
                told.setdefault((swallowed.by, swallowed.message), []).append(swallowed.where)
    for (module, message), symbols in ended.items():
        yield _ended(module, message, symbols, imported[symbols[0]])
    for (by, message), places in told.items():
        yield AuditFinding(
            level="info",
            subject=by,
            text=f"an import failed inside it and nobody was told: {message}; names behind it may be missing",
            proofs=(Proof("import", places[0], message),),
        )


def _ended(module: str, message: str, symbols: list[str], done: Imported) -> AuditFinding:
    """One module that ended the processes of all these names."""
    behind = [symbol for symbol in symbols if symbol != module]
    names = f"; {counted(len(behind), 'name')} behind it, such as {behind[0]}, cannot be had" if behind else ""
    lines = done.output.strip().splitlines()
    return AuditFinding(
        level="error",
        subject=module,
        text=message.replace(f"importing {module} ", "its import ") + names,
        proofs=(
            *(Proof("import", frame, "it was here") for frame in done.frames[-2:]),
            *(Proof("import", module, line) for line in ([] if done.frames else lines[-3:])),
        ),
        hint=f"'import {module}' in that interpreter; --no-cache once it is mended, for what was found is kept until "
        "files of the package change",
    )
