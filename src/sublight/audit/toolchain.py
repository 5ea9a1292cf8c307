"""Compilers and assemblers on the machine, for code that is built when it is first called."""

from sublight.audit.ladder import Answer, Proof
from sublight.audit.record import Build
from sublight.audit.replies import Tool, Toolchain

# Which tool a builder calls, and the variable that leads it to another one.
_TOOLS = {"nvcc": ("nvcc", "CUDA_HOME"), "triton": ("ptxas", "TRITON_PTXAS_PATH")}


def can_build(builder: str, capability: tuple[int, int], toolchain: Toolchain | None, reason: str) -> Build:
    """What the builder's own tool says of an architecture.

    Args:
        builder: "nvcc", "triton".
        reason: why nobody could be asked, where `toolchain` is None.
    """
    if toolchain is None:
        return Build(Answer.NOT_KNOWN, f"built here by {_TOOLS[builder][0]}; what there is, is not known: {reason}")
    tool, variable = _TOOLS[builder]
    tools = [found for found in toolchain.tools if found.tool == tool]
    used = _used(builder, tools)
    wanted = f"sm_{capability[0]}{capability[1]}"
    if used is None:
        return Build(
            Answer.FAIL,
            f"there is no {tool} to build it with when it is first called",
            (Proof("command", tool, "not found"),),
            f"a CUDA toolkit that knows {wanted}, and {variable} with its place",
        )
    if used.error:
        return Build(
            Answer.FAIL, f"{tool} at {used.path} does not work: {used.error}", (_proof(used),), f"another {tool}"
        )
    if _knows(used, capability):
        return Build(Answer.PASS, f"built here by {tool} {used.release}, which knows {wanted}", (_proof(used),))
    better = next((found for found in tools if not found.error and _knows(found, capability)), None)
    hint = f"{variable}={_home(better, tool, variable)}" if better else f"a CUDA toolkit that knows {wanted}"
    proofs = (_proof(used),) if better is None else (_proof(used), _proof(better))
    also = f"; {better.path} {better.release} does" if better else ""
    return Build(Answer.FAIL, f"{used.path}, release {used.release}, does not know {wanted}{also}", proofs, hint)


def _used(builder: str, tools: list[Tool]) -> Tool | None:
    """The tool that would be called. Triton takes the one its variable names, else its own, never the system's."""
    if builder == "triton":
        order = ("TRITON_PTXAS_BLACKWELL_PATH", "TRITON_PTXAS_PATH", "triton")
        for way in order:
            own = [tool for tool in tools if way in tool.found_by]
            if own:
                return max(own, key=lambda tool: _release(tool.release))
        return None
    working = [tool for tool in tools if not tool.error]
    return next(iter(working or tools), None)


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def _knows(tool: Tool, capability: tuple[int, int]) -> bool:
    number = f"{capability[0]}{capability[1]}"
    return any(target.rstrip("af") == number for target in tool.targets)


def _home(tool: Tool, name: str, variable: str) -> str:
    return tool.path.removesuffix(f"/bin/{name}") if variable == "CUDA_HOME" else tool.path


def _proof(tool: Tool) -> Proof:
    known = ", ".join(f"sm_{target}" for target in tool.targets[-8:])
    return Proof("command", f"{tool.path} --version", f"release {tool.release}; the newest it knows: {known}")


def missing_libraries(needed: tuple[str, ...], toolchain: Toolchain | None) -> dict[str, str]:
    """CUDA libraries of which another major version is there: "libnvrtc.so.12" -> "libnvrtc.so.13", or "" for none."""
    if toolchain is None or not toolchain.libraries:
        return {}
    missing = {}
    for name in needed:
        stem, _, major = name.partition(".so.")
        same = [found for found in toolchain.libraries if found.partition(".so.")[0] == stem]
        if major and stem.startswith(_CUDA_LIBRARIES) and name not in toolchain.libraries:
            missing[name] = same[0] if same else ""
    return missing


_CUDA_LIBRARIES = (
    "libcudart",
    "libnvrtc",
    "libcublas",
    "libcudnn",
    "libcusparse",
    "libcusolver",
    "libcufft",
    "libnccl",
)
