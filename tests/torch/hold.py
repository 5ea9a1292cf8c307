"""A Triton kernel that keeps multiprocessors for a while and does nothing. One block of it leaves no room for ours."""

import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer


@triton.jit
def hold(nanoseconds: tl.int64):  # type: ignore[no-untyped-def]  # Triton reads annotations
    start = globaltimer()
    while globaltimer() - start < nanoseconds:
        pass
