"""What is taken out of an answer before anybody looks at it: whatever names one machine, one card or one person."""

import re

import msgspec

from sublight.hosts.base import Completed
from sublight.tuning.parsers.environment import only_allowed

_PATTERNS = (
    (re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"), "(removed)"),
    (re.compile(r"((?:Serial Number|GPU PDI|GPU Fabric GUID|ClusterUUID|Host ID)\s*:\s*)\S+"), r"\1(removed)"),
    (re.compile(r"(Device Serial Number )[0-9a-fA-F-]+"), r"\1(removed)"),
    (re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"), "(removed)"),
    (re.compile(r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b(?!\.)"), "(removed)"),
    # Assignments are dropped wherever they stand: a saved output may have an environment behind it.
    (re.compile(r"^(?:export )?[A-Z][A-Z0-9_]{2,}=(?!\S*vmlinuz).*$", re.MULTILINE), "(removed)"),
    # Of the processes on the cards, the name and the number.
    (re.compile(r"^(\s*(?:Process ID|Name)\s*:\s*)\S.*$", re.MULTILINE), r"\1(removed)"),
    (re.compile(r"^(\|\s+[0-9]+\s+\S+\s+\S+\s+)[0-9]+(\s+[CGM+]+\s+)\S+", re.MULTILINE), r"\1-\2(removed)"),
)
# A kernel parameter that can hold a secret or an address; its name stays.
_PARAMETER = re.compile(
    r"\b((?:ip|root|nfsroot|rd\.\S+?|luks\S*?|\S*(?:password|token|secret|key)\S*?))=\S+", re.IGNORECASE
)


def clean(done: Completed) -> Completed:
    """The answer without serial numbers, UUIDs, addresses and secrets."""
    return msgspec.structs.replace(
        done,
        stdout=clean_text(done.text, done.argv).encode(),
        stderr=clean_text(done.stderr.decode("utf-8", "replace"), ()).encode(),
    )


def clean_text(text: str, argv: tuple[str, ...]) -> str:
    if argv == ("env",):
        return only_allowed(text)
    if argv == ("cat", "/proc/cmdline"):
        # What follows `--` is for init and none of the kernel's business.
        return _PARAMETER.sub(r"\1=(removed)", text.partition(" -- ")[0].rstrip("\n")) + "\n"
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
