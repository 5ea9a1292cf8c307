"""Engines: for each a small description of where to look; everything else is read from its installed source."""

from sublight.registry import Registry

ENGINES = Registry(
    "engine",
    "sublight.engines",
    {
        "sglang": "sublight.audit.engines.sglang:SGLANG",
        "vllm": "sublight.audit.engines.vllm:VLLM",
        "flashinfer": "sublight.audit.engines.flashinfer:FLASHINFER",
    },
    hint="sglang, vllm or flashinfer",
)
