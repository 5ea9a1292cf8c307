"""A scheme that answers from what is stored, and notes where the configuration had it otherwise."""

from itertools import islice
from typing import TYPE_CHECKING

from sublight.facts.formats import Format
from sublight.facts.quantization.base import Finding, Quantization, Rules, Site
from sublight.facts.quantization.names import expert_place, shortened, spellings
from sublight.facts.quantization.stored import TRACES, stored_format
from sublight.units import counted

if TYPE_CHECKING:
    from sublight.facts.checkpoint import Checkpoint

_WEIGHTS = (".weight", ".weight_packed", ".qweight")
_ACTIVATIONS = (".input_scale", ".input_global_scale")


class HeaderScheme:
    """Stored tensors first, the inferred scheme for modules that have none.

    Args:
        checkpoint: its headers.
        fallback: what the configuration says.
    """

    def __init__(self, checkpoint: "Checkpoint", fallback: Quantization) -> None:
        self.checkpoint = checkpoint
        self.fallback = fallback
        self.names_experts = bool(getattr(fallback.scheme, "names_experts", False))
        self._calibrated: set[str] = set()
        self._look_at_experts()
        self._differ: dict[tuple[Format, Format], list[str]] = {}
        self._traces: dict[Format, list[str]] = {}
        self._absent: dict[str, None] = {}
        self._asked: set[str] = set()

    def _look_at_experts(self) -> None:
        """Which expert sets have activation scales, and whether experts of one set are stored differently."""
        first: dict[str, tuple[str, tuple[int, ...]]] = {}
        for name, tensor in self.checkpoint.tensors.items():
            if ".experts." not in name:
                continue
            place = expert_place(name)
            if place is None:
                continue
            if name.endswith(_ACTIVATIONS):
                self._calibrated.add(place[0])
            elif name.endswith(_WEIGHTS):
                kind = (tensor.dtype, tensor.shape)
                if first.setdefault(f"{place[0]}/{place[2]}", kind) != kind:
                    self.names_experts = True

    def format_of(self, site: Site) -> Format:
        inferred = self.fallback.scheme.format_of(site)
        module = site.module
        if not module:
            return inferred  # a question about the default, not about a module
        found = self._stored(site, inferred)
        if module in self._asked:
            return found or inferred
        self._asked.add(module)
        if found is None:
            self._absent[module] = None
            return inferred
        if found.name != inferred.name:
            self._differ.setdefault((inferred, found), []).append(module)
        if not (found.is_quantised or inferred.is_quantised):
            traces = (f"{module}.{leaf}" for leaf in TRACES if f"{module}.{leaf}" in self.checkpoint.tensors)
            self._traces.setdefault(found, []).extend(islice(traces, 1))
        return found

    def _stored(self, site: Site, inferred: Format) -> Format | None:
        place = expert_place(site.module) if site.expert else None
        calibrated = place is not None and place[0] in self._calibrated
        tensors, inputs = self.checkpoint.tensors, site.shape[-1]
        found = stored_format(site.module, tensors, inputs, inferred, calibrated)
        if found is not None:
            return found
        others = spellings(site.module)
        if place is not None:  # experts stored as one stack: the expert's number is not in the name
            stack = f"{place[0]}.{place[2]}"
            others = [(stack,), *spellings(stack)]
        for names in others:
            found = stored_format(names[0], tensors, inputs, inferred, calibrated)
            if found is not None:
                return found
        return None

    def unmatched(self) -> list[str]:
        return self.fallback.scheme.unmatched()

    def rules(self) -> Rules:
        rules: Rules = getattr(self.fallback.scheme, "rules", lambda: Rules(""))()
        return rules

    @property
    def absent(self) -> tuple[str, ...]:
        """Modules that were asked for and have no stored tensor, answered as the configuration says."""
        return tuple(self._absent)

    def noticed(self) -> tuple[Finding, ...]:
        """Disagreements of headers and configuration, and what could not be checked. Complete after all questions."""
        findings = [
            Finding("warn" if inferred.is_quantised or found.is_quantised else "info", "stored format", text)
            for (inferred, found), modules in self._differ.items()
            for text in [_difference(inferred, found, modules)]
        ]
        for found, traces in self._traces.items():
            if traces:
                text = f"excluded but {shortened(traces)} present: counted {found.title}, verify"
                findings.append(Finding("warn", "stored format", text))
        earlier: tuple[Finding, ...] = getattr(self.fallback.scheme, "noticed", tuple)()
        if self._absent:
            have = "has" if len(self._absent) == 1 else "have"
            of = f"{len(self._absent)} of {counted(len(self._asked), 'module')} {have} no stored tensor"
            text = f"{of} ({shortened(list(self._absent))}): counted as the configuration says"
            findings.append(Finding("info", "checkpoint", text))
        return (*earlier, *findings)


def _difference(inferred: Format, found: Format, modules: list[str]) -> str:
    many = counted(len(modules), "module")
    text = f"{many} stored as {found.title} where the configuration says {inferred.title} ({shortened(modules)})"
    if not inferred.is_quantised and found.is_quantised:
        return f"{text}: counted as stored; engines follow the configuration and would misread or refuse them"
    return f"{text}: counted as stored"
