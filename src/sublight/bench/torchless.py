"""What can be said without importing torch: whether there is one, and whether it can do what was asked."""

import importlib.util

from sublight.errors import BenchError


def require_torch(asked: str, device: str) -> None:
    """Raises BenchError, with what is needed, where torch or its GPU is missing."""
    if importlib.util.find_spec("torch") is None:
        raise BenchError(asked, "torch is not installed", "pip install 'sublight[kernels]'")
    if device == "cuda":
        from sublight.bench.environment import require_cuda

        require_cuda(asked)
