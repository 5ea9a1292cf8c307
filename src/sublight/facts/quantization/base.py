"""What every quantisation scheme answers: in which format a module of the checkpoint is stored."""

from typing import Literal, Protocol

import msgspec

from sublight.facts.formats import BF16, FP16, FP32, Format

ModuleClass = Literal["Linear", "Gate", "Embedding", "Norm", "Conv1d", "Parameter"]


class Site(msgspec.Struct, frozen=True):
    """A weight whose format is asked for.

    Attributes:
        module: full name in the checkpoint, e.g. "model.layers.4.mlp.experts.0.gate_proj".
        module_class: what holds it. Schemes quantise "Linear" only; a router that the reference model writes as a
            bare parameter is a "Gate", and no scheme touches it.
        shape: (out, in) of one tensor.
        expert: one of the routed experts. Schemes may name the expert or the whole `experts` module above it.
        fixed: the release keeps it in high precision whatever the scheme says (e.g. the indexer's head weights).
    """

    module: str
    module_class: ModuleClass
    shape: tuple[int, ...]
    expert: bool = False
    fixed: bool = False


class Finding(msgspec.Struct, frozen=True):
    """Something a reader of the model should know: a contradiction, a choice made, a part left out."""

    level: Literal["info", "warn", "error"]
    subject: str
    text: str


class Scheme(Protocol):
    """Decides per module. `unmatched` is asked after every module was, and names rules that matched none of them.

    Three more attributes are optional. `names_experts` is true where rules tell single experts apart, so that each
    must be asked. `noticed()` gives findings that need the questions first: where stored tensors and rules disagree.
    `rules()` gives what two sources of the same scheme are compared by.
    """

    def format_of(self, site: Site) -> Format: ...

    def unmatched(self) -> list[str]: ...


class Rules(msgspec.Struct, frozen=True):
    """What a scheme says, apart from how it decides: enough to tell whether two files say the same.

    Attributes:
        default: name of the format of modules that no rule names, "" where each is named.
        excluded: patterns of modules left alone.
        named: module or pattern -> name of its format.
    """

    default: str
    excluded: frozenset[str] = frozenset()
    named: dict[str, str] = {}


class Quantization(msgspec.Struct, frozen=True):
    """A scheme, and where it was read.

    Attributes:
        method: "none", "modelopt", "compressed-tensors", "fp8", "mxfp4", "awq", "gptq".
        source: the file and field that decided, e.g. "hf_quant_config.json (config.json silent)".
        summary: one line for a reader: "NVFP4, group 16, 471 exclusions".
        kv_cache: format the checkpoint declares for its KV cache ("fp8"), or "" when it does not.
        scheme: decides per module.
        findings: contradictions and choices made while reading.
    """

    method: str
    source: str
    summary: str
    kv_cache: str
    scheme: Scheme
    findings: tuple[Finding, ...] = ()

    def all_findings(self) -> tuple[Finding, ...]:
        """`findings`, and what the scheme noticed while it was asked. Complete once every module was asked."""
        noticed = getattr(self.scheme, "noticed", tuple)
        return (*self.findings, *noticed())


class Unquantised:
    """Everything in the configuration's own dtype; norms and router biases as the release stores them."""

    def __init__(self, default: Format = BF16) -> None:
        self.default = default

    def format_of(self, site: Site) -> Format:  # noqa: ARG002 - every module is stored alike
        return self.default

    def unmatched(self) -> list[str]:
        return []


DTYPES: dict[str, Format] = {"bfloat16": BF16, "float16": FP16, "float32": FP32}
