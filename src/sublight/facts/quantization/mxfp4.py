"""`quant_method: mxfp4`, as OpenAI's gpt-oss is released: the routed experts and nothing else.

The model card says so, and the loaders do so: transformers replaces the experts alone (`integrations/mxfp4.py`), vLLM
and SGLang give linear layers an unquantised method. The list of exclusions names what is linear anyway.
"""

from sublight.facts.fields import Fields
from sublight.facts.formats import MXFP4, Format
from sublight.facts.quantization.base import Quantization
from sublight.facts.quantization.exclusion import AllBut
from sublight.facts.quantization.patterns import Paths
from sublight.facts.quantization.summary import described, summary


def read(fields: Fields, plain: Format) -> Quantization:
    """A scheme from `quantization_config`."""
    excluded = Paths(fields.names("modules_to_not_convert") or [])
    return Quantization(
        method="mxfp4",
        source="",
        summary=summary(f"{described(MXFP4)}, experts only", "", len(excluded.patterns)),
        kv_cache="",
        scheme=AllBut(MXFP4, plain, excluded, experts_only=True),
    )
