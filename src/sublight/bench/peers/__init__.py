"""Who is timed: our kernels, and other projects' through adapters. An adapter imports its project when it is prepared,
says why it cannot run, and holds nothing of the project's code.

Another package adds one with an entry point in the group `sublight.bench.peers`, whose object is a `Candidate`.
"""

from sublight.registry import Registry

PEERS = Registry(
    "peer",
    "sublight.bench.peers",
    {
        "humming": "sublight.bench.peers.humming:HUMMING",
        "sglang-marlin": "sublight.bench.peers.sglang:MARLIN",
        "vllm-marlin": "sublight.bench.peers.vllm:MARLIN",
        "torch-grouped-mm": "sublight.bench.peers.grouped:GROUPED_MM",
    },
)
