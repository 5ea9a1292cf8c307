"""Installation: what lies in the interpreter or folder that is audited, and what the machine under it is."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from sublight.audit.doors import Door
from sublight.audit.replies import (
    Cards,
    Distribution,
    Distributions,
    Interpreter,
    Owner,
    Place,
    Told,
    Toolchain,
)
from sublight.errors import HostError

# Variables that engines and the libraries under them read. Values of names that sound like secrets never leave.
VARIABLES = (
    "CUDA_",
    "CUTE_DSL_",
    "CUTLASS_",
    "DG_",
    "FLASHINFER_",
    "HUMMING_",
    "LD_LIBRARY_PATH",
    "NCCL_",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_",
    "SGLANG_",
    "SGL_",
    "TORCHINDUCTOR_",
    "TORCH_CUDA_",
    "TORCH_NCCL_",
    "TRITON_",
    "TRTLLM_",
    "VLLM_",
)


class Installation(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What is known of it before any engine is looked at.

    `interpreter`, `cards` and `toolchain` are None where nobody could be asked; `reasons` says why, by question.
    `places` are where the packages that were asked for would be imported from; those that are nowhere are left out.
    """

    name: str
    interpreter: Interpreter | None
    found: Distributions
    cards: Cards | None
    toolchain: Toolchain | None
    places: dict[str, Place] = {}
    reasons: dict[str, str] = {}

    @cached_property
    def _by_name(self) -> dict[str, Distribution]:
        return {normal(distribution.name): distribution for distribution in reversed(self.found.distributions)}

    def distribution(self, name: str) -> Distribution | None:
        return self._by_name.get(normal(name))

    def owners(self, top: str) -> tuple[Owner, ...]:
        """Distributions that ship an import name, the one with most files first."""
        return tuple(sorted(self.found.owners.get(top, ()), key=lambda owner: -owner.files))

    @property
    def environment(self) -> dict[str, str]:
        return self.interpreter.environment if self.interpreter else {}


def normal(name: str) -> str:
    """A distribution's name as indexes compare them: "Flashinfer_Python" is "flashinfer-python"."""
    return re.sub(r"[-_.]+", "-", name).lower()


def look(door: Door, known: Distributions | None = None, packages: Sequence[str] = ()) -> Installation:
    """Ask for everything that does not depend on an engine, in one question.

    Args:
        packages: import names whose places are asked for.
        known: distributions of an earlier look; taken over when nothing has changed since.

    Raises HostError when nobody answers, or the answer about distributions cannot be used.
    """
    reply = door.ask(
        {
            "interpreter": {"prefixes": list(VARIABLES)},
            "distributions": {"known": known.fingerprint if known else ""},
            "gpus": {},
            "toolchain": {},
            "packages": {"names": list(packages)},
        }
    )
    found = _decoded(reply["distributions"], Distributions)
    if found is None:
        raise HostError(f"asking {door.name} what is installed", reply["distributions"].error, "the same again")
    if found.unchanged and known is not None:
        found = msgspec.structs.replace(known, unchanged=True)
    return Installation(
        name=door.name,
        interpreter=_decoded(reply["interpreter"], Interpreter),
        found=found,
        cards=_decoded(reply["gpus"], Cards),
        toolchain=_decoded(reply["toolchain"], Toolchain),
        places=msgspec.json.decode(reply["packages"].answer or b"{}", type=dict[str, Place]),
        reasons={question: told.error for question, told in reply.items() if told.error},
    )


_Reply = TypeVar("_Reply", bound=msgspec.Struct)


def _decoded(told: Told, kind: type[_Reply]) -> _Reply | None:
    return msgspec.json.decode(told.answer, type=kind) if told.answer else None
