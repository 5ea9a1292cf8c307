"""The masked grouped GEMM with FlashInfer 0.6.3's signature, shapes, layouts and meaning, and the layer around it.

`grouped_gemm_nt_masked` can stand where `flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked` stood. What
differs is said here and nowhere hidden: a call that no kernel can run is refused with the reason, before anything is
written, and `backend` names a kernel. Tensors on a CPU run with `backend="reference"` alone.

Shapes, for l groups (experts):

| | as passed | in memory |
|---|---|---|
| lhs | (m, k, l), or (m, k/2, l) bytes of two four-bit codes | (l, m, k) |
| rhs | (n, k, l), or (n, k/2, l) | (l, n, k) |
| their scales | (32, 4, rm, 4, rk, l) | (l, rm, rk, 32, 4, 4), whole tiles of 128 rows x 4 scales |
| out | (m, n, l) | (l, m, n) |
| masked_m | (l,) int32: rows of each group that count | |

FlashInfer looks at the memory of scales and output only. So scales may also come as the bytes of whole tiles,
[l, rows padded to 128, scales padded to 4], which is how engines keep them; out also as (l, m, n), as FlashInfer's
documentation writes it. Rows of out from masked_m on are not specified: here they keep what they had.

Nothing in this module imports torch, so that it can be imported where there is none.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from sublight.kernels.dispatch import dispatch
from sublight.kernels.masked_call import CALL, checked_call

if TYPE_CHECKING:
    from torch import Tensor


def grouped_gemm_nt_masked(
    lhs: "tuple[Tensor, Tensor]",
    rhs: "tuple[Tensor, Tensor]",
    out: "Tensor",
    masked_m: "Tensor",
    *,
    ab_dtype: str,
    sf_dtype: str,
    c_dtype: str,
    sf_vec_size: int,
    dst_signals: "Tensor | None" = None,
    sm_count: int | None = None,
    backend: str | None = None,
    **kwargs: Any,
) -> "Tensor":
    """out[g, :masked_m[g]] = alpha[g] * lhs[g] @ rhs[g].T for each group; returns out.

    Args:
        lhs, rhs: (codes, block scales) in the shapes above.
        ab_dtype, sf_dtype, c_dtype: of codes, scales and out: "float4_e2m1fn", "float8_e4m3fn", "bfloat16", ...
        sf_vec_size: values that share a scale.
        dst_signals: uint32 counters of finished groups, for a consumer that starts before the kernel has ended.
        sm_count: how many SMs the kernel may use.
        backend: a kernel by name; "reference" is plain torch on any device. Left out, the catalogue's kernel for this
            GPU is taken.
        **kwargs: alpha (one factor a group), alpha_dtype (its type, which has to be said), mma_tiler_mn and
            cluster_shape_mn (checked as FlashInfer does, hints otherwise).

    Raises:
        KernelError: arguments that FlashInfer 0.6.3 does not have, tensors that do not fit, or no kernel that does it.
    """
    call = checked_call(
        lhs,
        rhs,
        out,
        masked_m,
        ab_dtype=ab_dtype,
        sf_dtype=sf_dtype,
        c_dtype=c_dtype,
        sf_vec_size=sf_vec_size,
        dst_signals=dst_signals,
        sm_count=sm_count,
        options=kwargs,
    )
    kernel = dispatch(CALL, call.problem, call.lhs.device, backend)
    kernel.run(msgspec.structs.replace(call, configuration=kernel.configuration))
    return out
