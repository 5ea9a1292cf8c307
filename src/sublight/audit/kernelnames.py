"""Whose kernels a backend runs, as the rules of `trace` call them: by these a trace proves a backend."""

# Of experts: words in a destination or name -> labels. The first that fits decides.
LABELS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("mega_moe", "megamoe"), ("DeepGEMM mega MoE",)),
    (("trtllm",), ("TRT-LLM-gen MoE",)),
    (("cutlass_fused_moe", "flashinfer_cutlass", "flashinfercutlass"), ("TensorRT-LLM CUTLASS MoE",)),
    (("cutedsl", "cute_dsl"), ("FlashInfer CuTe DSL MoE", "TensorRT-LLM CuTe DSL MoE")),
    (("fused_moe_triton", "fused_moe_kernel"), ("Triton fused MoE",)),
    (("triton_kernel", "matmul_ogs"), ("triton_kernels matmul_ogs",)),
    (("deep_gemm", "deepgemm"), ("DeepGEMM",)),
    (("marlin",), ("Marlin",)),
    (("humming",), ("humming",)),
    (("cutlass",), ("CUTLASS grouped GEMM",)),
    (("triton",), ("Triton fused MoE",)),
)
_SGLANG = "SGLang custom all-reduce"
# Two generations of it have one label: the backend, and how the names of its kernels begin.
_BEGINS = {"customallreduce": "cross_device_reduce", "customallreducev2": "all_reduce_"}

# Of other areas, by the backend's whole name: one word of it would be shared by kernels that are not its own. Left out
# is what shares its kernels with another backend of the area (NCCL's are torch's as well).
NAMED: dict[str, dict[str, tuple[str, ...]]] = {
    "attention": {
        "flash_attn": ("FlashAttention 2", "FlashAttention 3", "FlashAttention 4"),
        "flash_attn_mla": ("FlashAttention 3",),
        "flashmla": ("FlashMLA",),
        "flashmla_sparse": ("FlashMLA sparse",),
        "flashinfer_mla_sparse": ("FlashInfer sparse MLA", "TRT-LLM-gen sparse FMHA"),
        "cutlass_mla": ("CUTLASS FMHA",),
        "triton_attn": ("Triton attention",),
        "triton_mla": ("Triton attention",),
        "triton": ("Triton attention",),
        "fa3": ("FlashAttention 3",),
        "fa4": ("FlashAttention 4",),
        "flashinfer": ("FlashInfer", "FlashInfer MLA"),
        "trtllm_mha": ("TRT-LLM-gen FMHA",),
        "trtllm_mla": ("TRT-LLM-gen FMHA",),
    },
    "fp4-gemm": {"marlin": ("Marlin",), "humming": ("humming",)},
    "all-reduce": {
        "customallreduce": ("vLLM custom all-reduce", _SGLANG),
        "customallreducev2": (_SGLANG,),
        "symmmemcommunicator": ("PyTorch symmetric memory", "PyTorch symmetric memory, multimem"),
        "torchsymmmemcommunicator": ("PyTorch symmetric memory", "PyTorch symmetric memory, multimem"),
        "pymscclppcommunicator": ("MSCCL++",),
    },
}


def labels_of(name: str, destination: str, area: str = "moe") -> tuple[str, ...]:
    """How a trace calls the kernels of a backend; () where names alone do not tell.

    The destination of experts decides where it is known: what a backend is called says only what was asked for.
    """
    if area != "moe":
        return NAMED.get(area, {}).get(name.lower(), ())
    for text in (destination.lower(), name.lower()):
        for parts, labels in LABELS:
            if any(part in text for part in parts):
                return labels
    return ()


def is_own(name: str, label: str, kernel: str) -> bool:
    """Whether a kernel of this label is this backend's, where a label is of two backends."""
    return label != _SGLANG or kernel.rpartition("::")[2].startswith(_BEGINS.get(name.lower(), ""))
