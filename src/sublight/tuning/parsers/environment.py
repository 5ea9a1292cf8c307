"""`env`, of which a short list of variables is looked at. The rest is nobody's business and is dropped on arrival."""

import re

from sublight.tuning.parsers.values import plain

# The only variables that are read, kept or shown.
ALLOWED = (
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DISABLE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_PROTO",
    "NCCL_GRAPH_FILE",
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS",
    "NCCL_IB_DISABLE",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)
_ASSIGNMENT = re.compile(r"(?:export )?([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_PLAIN = re.compile(
    r"[A-Za-z0-9_.,:^+>\[\]]{0,100}"
)  # a word or a list of them: no path, no address, no UUID of a card


def looks_like(text: str) -> bool:
    """Assignments and nothing else, one of them of a variable that counts or that every environment has."""
    lines = [line for line in plain(text).splitlines() if line.strip() and not line.startswith("#")]
    names = [match[1] for line in lines if (match := _ASSIGNMENT.fullmatch(line))]
    return bool(names) and len(names) == len(lines) and any(name in ALLOWED or name == "PATH" for name in names)


def parse(text: str) -> dict[str, str]:
    found = {}
    for line in plain(text).splitlines():
        match = _ASSIGNMENT.fullmatch(line)
        if match and match[1] in ALLOWED:
            found[match[1]] = match[2].strip().strip("\"'")
    return found


def only_allowed(text: str) -> str:
    """The environment without what is not on the list; one that had none of it keeps a line that says so."""
    kept = [f"{name}={value if _PLAIN.fullmatch(value) else '(not kept)'}" for name, value in parse(text).items()]
    return "\n".join(["PATH=(not kept)", *kept]) + "\n"
