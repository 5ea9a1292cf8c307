"""`quant_method: fp8`, the form of the DeepSeek-V3 release, and its sibling `mxfp8`.

With `weight_block_size` each tile has a scale (`weight_scale_inv`), without it each tensor has one. The modules that
stay in high precision are listed in `modules_to_not_convert` (vLLM and SGLang also read `ignored_layers`, and read it
first).

Where the list is absent, the release's own rule holds: embedding, output head, gates and norms keep their precision
(DeepSeek-V3 technical report, arXiv 2412.19437, section 3.3.1; its checkpoint stores no scale for them). So do the
projection into an MTP layer (`eh_proj`) and the indexer's head weights (`weights_proj`), which have no scale in
DeepSeek-V3 and V3.2 either; zai-org/GLM-5-FP8 lists them. The engines come to the same: they build gates, heads and
norms without this scheme, whatever the list says.
"""

from sublight.facts.fields import Fields
from sublight.facts.formats import FP8, MXFP4, Format
from sublight.facts.quantization.arguments import kv_cache_format
from sublight.facts.quantization.base import Finding, Quantization
from sublight.facts.quantization.exclusion import AllBut
from sublight.facts.quantization.patterns import Paths
from sublight.facts.quantization.summary import described, summary
from sublight.facts.quantization.variants import MXFP8, at_rate, fp8_blocks
from sublight.units import counted

_KEPT = frozenset({"lm_head", "head", "embed_tokens", "gate", "eh_proj", "weights_proj"})
_ENCODINGS = ("e4m3", "e4m3fn", "float8_e4m3fn")

# zai-org/GLM-5-FP8 took ".weight" out of "self_attn.indexer.weights_proj.weight" wherever it stood.
_GARBLED = ("self_attn.indexers_proj", "self_attn.indexer.weights_proj")


def read(fields: Fields, plain: Format) -> Quantization:
    """A scheme from `quantization_config`. Raises ConfigError for an encoding or block that is none."""
    encoding = fields.text("fmt", _ENCODINGS[0]).lower()
    if encoding not in _ENCODINGS:
        raise fields.error(f"fmt is {encoding!r}", f"fmt {' or '.join(_ENCODINGS)}, the FP8 that engines load")
    listed, findings = _listed(fields)
    quantised = _weights(fields)
    experts = _experts(fields)
    excluded = Paths(name.replace(*_GARBLED) for name in listed)
    kv_cache = kv_cache_format(fields, "kv_cache_quant_algo", "kv_cache_scheme")
    what = described(quantised) if experts is None else f"{described(quantised)}, experts {described(experts)}"
    line = summary(what, kv_cache, len(listed))
    if not listed:
        line = line.replace(counted(0, "exclusion"), "heads and gates excluded (no list)")
    return Quantization(
        method=fields.text("quant_method").lower(),
        source="",
        summary=line,
        kv_cache=kv_cache,
        scheme=AllBut(quantised, plain, excluded, kept=frozenset() if listed else _KEPT, experts=experts),
        findings=tuple(findings),
    )


def _weights(fields: Fields) -> Format:
    if fields.text("quant_method").lower() == "mxfp8":
        return MXFP8  # blocks of 1x32 by definition; engines ignore another weight_block_size
    block = fields.sizes("weight_block_size", 2) if fields.data.get("weight_block_size") else None
    if block is None:
        return FP8
    if min(block) < 1:
        raise fields.error(f"weight_block_size is {block}", "two sizes above 0, such as [128, 128]")
    return fp8_blocks(block[0], block[1])


def _experts(fields: Fields) -> Format | None:
    """DeepSeek-V4 packs its experts as four-bit floats with a scale per 32 (transformers, FineGrainedFP8Config)."""
    kind = fields.text("expert_dtype", "fp8").lower()
    if kind not in ("fp8", "fp4"):
        raise fields.error(f"expert_dtype is {kind!r}", 'expert_dtype "fp8" or "fp4"')
    return at_rate(MXFP4, "fp8") if kind == "fp4" else None


def _listed(fields: Fields) -> tuple[list[str], list[Finding]]:
    """The exclusions. An empty list counts as none, as engines take it."""
    first, second = fields.names("ignored_layers") or [], fields.names("modules_to_not_convert") or []
    if first and second and set(first) != set(second):
        text = (
            f"ignored_layers names {counted(len(first), 'module')} and modules_to_not_convert {len(second)}: counted "
            "by the former, which vLLM and SGLang read; transformers reads the latter"
        )
        return first, [Finding("warn", "quantisation", text)]
    return first or second, []
