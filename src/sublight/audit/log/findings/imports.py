"""What could not be imported, and what was left out for want of a compiler that nothing needs."""

import re
from collections.abc import Iterator

from sublight.audit.log.findings.finding import Known, LogFinding
from sublight.audit.log.record import EngineLog, Fact, FactKind

_CUDA_LIBRARY = re.compile(r"lib(?:nvrtc|cudart|cublas(?:Lt)?)\.so\.(\d{1,2})")
_VARIANT = re.compile(r"\bsm(\d{2,3})\b")


def import_findings(log: EngineLog, _known: Known) -> Iterator[LogFinding]:
    failed = log.of(FactKind.IMPORT_ERROR)
    wheel = next((f for f in failed if f.get("module") == "sgl_kernel"), None)
    if wheel is not None:
        yield _kernel_wheel(log, wheel, failed)
    for fact in failed:
        if wheel is None or (fact is not wheel and fact.get("cause") != "library"):
            yield _import(log, fact)
    for fact in log.of(FactKind.UNAVAILABLE):
        yield _no_compiler(log, fact)
    for fact in log.of(FactKind.FAILURE):
        yield LogFinding(
            id="failure", level="error", subject="start", text=fact.get("error"), proofs=(log.proof(fact),)
        )


def _kernel_wheel(log: EngineLog, wheel: Fact, failed: tuple[Fact, ...]) -> LogFinding:
    """SGLang's kernels have a folder an architecture; both the folder and the CUDA it was built for have to fit."""
    loader = log.of(FactKind.LOADER)
    capability = next((f.get("value") for f in loader if f.get("what") == "compute capability"), "")
    tried = sorted({f"sm{n}" for f in loader if f.get("what") == "tried" for n in _VARIANT.findall(f.get("value"))})
    libraries = [f for f in failed if f.get("cause") == "library"]
    faults = []
    if capability and tried and f"sm{capability}" not in tried:
        faults.append(f"it has {', '.join(tried)} for a card of compute capability {capability}")
    for fact in libraries:
        match = _CUDA_LIBRARY.fullmatch(fact.get("module"))
        built = f", which is built for CUDA {match[1]}" if match else ""
        faults.append(f"{fact.get('module')} is not there{built}")
    text = "sgl_kernel could not load its operators" + (f": {'; '.join(faults)}." if faults else ".")
    if len(faults) > 1:
        text += " These are two faults: a build for the other CUDA alone does not bring code for the card."
    return LogFinding(
        id="kernel-wheel",
        level="error",
        subject="sgl_kernel",
        text=text,
        proofs=tuple(log.proof(f) for f in (wheel, *loader, *libraries)),
        advice="a build of the kernel wheel for this architecture and this CUDA, or the engine's own image",
    )


def _import(log: EngineLog, fact: Fact) -> LogFinding:
    module = fact.get("module")
    ignored = fact.rule == "sglang.import-ignored"
    about = f"{module}: " if module and module not in fact.get("error") else ""
    return LogFinding(
        id="import-ignored" if ignored else "import-failed",
        level="info" if ignored else "error",
        subject=module or "import",
        text=f"{about}{fact.get('error')}." + (" The engine went on without it." if ignored else ""),
        proofs=(log.proof(fact),),
    )


def _no_compiler(log: EngineLog, fact: Fact) -> LogFinding:
    return LogFinding(
        id="hidden-for-want-of-nvcc",
        level="warn",
        subject=fact.get("what"),
        text=f"the engine offers no kernels of {fact.get('what')}: {fact.get('reason')}. A compiler is needed only for "
        "kernels that are built at first use; prebuilt ones for the card need none.",
        proofs=(log.proof(fact),),
        advice="flashinfer-cubin of the version of flashinfer-python; where its kernels are there in another way, "
        "VLLM_HAS_FLASHINFER_CUBIN=1",
    )
