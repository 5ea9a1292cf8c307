"""Names as traces have them, and what a reader says they are; and the function's own name among its arguments.

Names longer than a line are cut short in their arguments, as some profilers do, which may not change the answer.
"""

import pytest

from sublight.trace.classify import Category, Kind, classify, own_name

COMPUTE, COMMUNICATION, MEMORY = Category.COMPUTE, Category.COMMUNICATION, Category.MEMORY
AT = "void at::native::"
ENABLED = "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2"
)
TRT = "void flashinfer::trtllm_"

REAL: dict[tuple[Kind, Category, str], list[str]] = {
    (Kind.GEMM, COMPUTE, "cuBLAS nvjet"): [
        "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",
        "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
        "nvjet_sm90_tst_384x8_64x4_2x1_v_bz_TNT",
        "nvjet_tss_256x128_64x4_1x2_h_bz_coopA_TNT",
    ],
    (Kind.GEMM, COMPUTE, "cuBLAS split-K reduce"): [
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, false, float>",
    ],
    (Kind.GEMM, COMPUTE, "cuBLAS gemv"): [
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, float>(int)",
        "void gemv2T_kernel_val<int, int, float, float, float, float, (int)128, (int)16, (int)4, (int)4, (bool)0",
    ],
    (Kind.GEMM, COMPUTE, "cuBLAS xmma"): [
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4",
    ],
    (Kind.GEMM, COMPUTE, "cuBLAS CUTLASS 2.x"): [
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(T1::Params)",
    ],
    (Kind.GEMM, COMPUTE, "CUTLASS"): [
        "void cutlass::device_kernel<vllm::cutlass_3x_gemm_fp8_blockwise<cutlass::bfloat16_t, (int)1, (int)128>>(T1)",
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10collective13CollectiveMm",
    ],
    (Kind.MOE_GEMM, COMPUTE, "CUTLASS grouped GEMM"): [
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalINS1_17GroupProblemShapeIN4cute5tupleIJlllEEEEENS1_1",
    ],
    (Kind.GEMM, COMPUTE, "DeepGEMM"): [
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 1024u, 1u, (deep_gemm::GemmType)0>",
    ],
    (Kind.MOE_GEMM, COMPUTE, "DeepGEMM"): [
        "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 160u, 128u, 0u, 64u, 9u, 1u, true, (deep_gemm::GemmType)1",
    ],
    (Kind.INDEXER, COMPUTE, "DeepGEMM"): [
        "void deep_gemm::sm90_fp8_paged_mqa_logits<1u, 32u, 128u, 64u, true, false, 3u, 3u, 256u, 128u, 512u, float>(x",
    ],
    (Kind.GEMM, COMPUTE, "Marlin"): [
        "void marlin::Marlin<1125899906909960l, 562949953487106l, 1125899906909960l, 2814749767172868l, 128, 1, 4, 8",
        "void sglang::device::marlin::Marlin<__nv_bfloat16, 1, 256>",
    ],
    (Kind.MOE_GEMM, COMPUTE, "Marlin"): [
        "void marlin_moe_wna16::Marlin<1125899906909960l, 562949953487106l, 1125899906909960l, 2814749767172868l, 128,",
        "void device::marlin_moe::Marlin<__nv_bfloat16, 562949953487106l, 2814749767172868l, 256, 4, 16, 4, false, 4, ",
    ],
    (Kind.GEMM, COMPUTE, "humming"): ["humming"],
    (Kind.GEMM, COMPUTE, "Triton GEMM"): ["_w8a8_block_fp8_matmul"],
    (Kind.MOE_GEMM, COMPUTE, "Triton fused MoE"): ["fused_moe_kernel", "fused_moe_kernel_gptq_awq"],
    (Kind.MOE_GEMM, COMPUTE, "TRT-LLM-gen MoE"): [
        "bmm_E2m1_E2m1E2m1_Fp32_t128x8x512_s5_et128x8_m128x8x64_c1x1x1_rM_TN_transOut_schedS_bN_clmp_swiGlu_dynB_sm100",
    ],
    (Kind.MOE_GEMM, COMPUTE, "triton_kernels matmul_ogs"): ["_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu"],
    (Kind.ATTENTION, COMPUTE, "FlashAttention 3"): [
        FA3,
        "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>, cute::C<128> >, 5, 256, 1, fal",
        "void flash::prepare_varlen_num_blocks_kernel<1, true>(int, int, int, int const*, int const*, int const*)",
    ],
    (Kind.ATTENTION, COMPUTE, "FlashAttention 2"): [
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::half_t",
    ],
    (Kind.ATTENTION, COMPUTE, "FlashAttention 4"): [
        "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor000o111012_ten",
    ],
    (Kind.ATTENTION, COMPUTE, "FlashMLA sparse"): [
        "void sm90::fwd::sparse_attn_fwd_kernel<sm90::fwd::KernelTemplate<576, false>, sm90::fwd::KernelTemplate<576, ",
    ],
    (Kind.ATTENTION, COMPUTE, "FlashMLA"): [
        "void flash::flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8, cutlass::bfloat16_t, 512",
    ],
    (Kind.ATTENTION, COMPUTE, "TRT-LLM-gen FMHA"): [
        "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64MultiCtasKvVarSeqQ8Kv128StaticSwapsAbForGen",
    ],
    (Kind.ATTENTION, COMPUTE, "Triton attention"): ["kernel_unified_attention_3d", "_fwd_grouped_kernel_stage1"],
    (Kind.INDEXER, COMPUTE, "vLLM"): [
        "void vllm::persistent::persistent_topk_kernel<2048, 4u>(vllm::persistent::PersistentTopKParams)",
        "void vllm::indexer_k_quant_and_cache_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>(x)",
    ],
    (Kind.KV_WRITE, COMPUTE, "vLLM"): [
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(x)",
        "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(x)",
    ],
    (Kind.KV_WRITE, COMPUTE, "SGLang"): [
        "void (anonymous namespace)::fused_rope_store_kernel<true, 128l, true, __nv_bfloat16, long, 16u>((anonymous na",
    ],
    (Kind.ROUTING, COMPUTE, "vLLM"): [
        "void vllm::moe::topkGating<8, 128, 4, 16, 32, int, __nv_bfloat16, (vllm::moe::ScoringFunc)0>(x)",
        "void vllm::moe::grouped_topk_fused_small_expert_count_kernel<__nv_bfloat16, float, int, (vllm::moe::ScoringFu",
        "void vllm::moe::moe_align_block_size_kernel<int>(int const*, int*, int*, int*, int*, int, int, int, int, x)",
    ],
    (Kind.ROUTING, COMPUTE, "SGLang"): [
        "_router_triton_kernel",
        "void moe_align_block_size_kernel<int>(int const*, int*, int*, int*, int, int, unsigned long, int*, bool, bool",
        "void moe_sum_reduce_kernel<c10::BFloat16, 8>(c10::BFloat16 const*, c10::BFloat16*, long, long, long, long, lo",
    ],
    (Kind.ACTIVATION, COMPUTE, "vLLM"): [
        "void vllm::act_and_mul_kernel<c10::BFloat16, __nv_bfloat162, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>",
    ],
    (Kind.ACTIVATION, COMPUTE, "SGLang"): [
        "void (anonymous namespace)::act_and_mul_kernel<__nv_bfloat16, ((anonymous namespace)::ActivationKind)0, true,",
    ],
    (Kind.ACTIVATION, COMPUTE, "Inductor"): ["triton_poi_fused_mul_silu_slice_0"],
    (Kind.NORM, COMPUTE, "vLLM"): [
        f"{ENABLED}vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
        "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*, c10::BFloat16 const*, long, long, long, long,",
    ],
    (Kind.NORM, COMPUTE, "FlashInfer"): ["void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>"],
    (Kind.NORM, COMPUTE, "SGLang"): [
        "void (anonymous namespace)::fused_qknorm_warp<128l, true, __nv_bfloat16>((anonymous namespace)::QKNormParams)",
    ],
    (Kind.NORM, COMPUTE, "Inductor"): [
        "triton_red_fused__to_copy_add_mean_moe_forward_shared_mul_pow_rsqrt_0",
        "triton_red_fused__to_copy_add_marlin_gemm_mean_mul_pow_rsqrt_0",
    ],
    (Kind.ROPE, COMPUTE, "Inductor"): [
        "triton_poi_fused_add_cat_index_select_mul_slice_split_split_with_sizes_stack_sub_unsqueeze_view_3",
    ],
    (Kind.REDUCE, COMPUTE, "Inductor"): ["triton_per_fused_copy__mul_sum_0"],
    (Kind.ELEMENTWISE, COMPUTE, "Inductor"): ["triton_red_fused_2", "triton_poi_fused_mul_slice_unsqueeze_view_5"],
    (Kind.QUANTISE, COMPUTE, "per-token-group quantisation"): [
        "void per_token_group_quant_8bit_kernel<c10::BFloat16, __nv_fp8_e4m3, false, true, float>(c10::BFloat16 const*",
    ],
    (Kind.QUANTISE, COMPUTE, "vLLM"): ["void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false, false>(int, int, int, int)"],
    (Kind.STATE, COMPUTE, "flash-linear-attention"): ["fused_recurrent_gated_delta_rule_packed_decode_kernel"],
    (Kind.STATE, COMPUTE, "causal-conv1d"): ["_causal_conv1d_update_kernel"],
    (Kind.STATE, COMPUTE, "Mamba Triton"): ["_selective_scan_update_kernel"],
    (Kind.SAMPLING, COMPUTE, "PyTorch"): [
        f"{AT}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int",
    ],
    (Kind.ELEMENTWISE, COMPUTE, "PyTorch"): [
        f"{AT}vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(in",
    ],
    (Kind.INDEX, COMPUTE, "PyTorch"): [f"{AT}vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long)"],
    (Kind.COPY, MEMORY, "PyTorch"): [
        f"{AT}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#3",
        f"{AT}(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned>(",
    ],
    (Kind.SET, MEMORY, "PyTorch"): [f"{AT}vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array"],
    (Kind.COPY, MEMORY, "CUDA driver"): [
        "Memcpy HtoD (Pinned -> Device)",
        "memcpy32_post",
        "[CUDA memcpy Device-to-Host]",
    ],
    (Kind.SET, MEMORY, "CUDA driver"): ["Memset (Device)", "memset32"],
    (Kind.ALL_REDUCE, COMMUNICATION, "NCCL"): [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)",
    ],
    (Kind.ALL_GATHER, COMMUNICATION, "NCCL"): ["ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"],
    (Kind.REDUCE_SCATTER, COMMUNICATION, "NCCL"): ["ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"],
    (Kind.SEND, COMMUNICATION, "NCCL"): ["ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"],
    (Kind.ALL_REDUCE, COMMUNICATION, "vLLM custom all-reduce"): [
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*, __",
    ],
    (Kind.ALL_REDUCE, COMMUNICATION, "FlashInfer trtllm all-reduce fusion"): [
        f"{TRT}allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::trtllm_allreduce_fusion::AllRedu",
    ],
    (Kind.ALL_REDUCE, COMMUNICATION, "PyTorch symmetric memory, multimem"): [
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long, unsi",
    ],
    (Kind.ALL_TO_ALL, COMMUNICATION, "DeepEP"): [
        "void deep_ep::internode_ll::dispatch<(bool)1, (bool)1, (int)6144>",
        "void deep_ep::internode_ll::combine<(bool)0, (int)6144, (int)11, (int)4>",
    ],
}


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert sum(map(len, REAL.values())) >= 80


@pytest.mark.parametrize(("expected", "name"), [(key, name) for key, names in REAL.items() for name in names])
def test_real_names(expected: tuple[Kind, Category, str], name: str) -> None:
    answer = classify(name)

    assert (answer.kind, answer.category, answer.backend) == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{AT}elementwise_kernel<128, 2, at::native::sort_by_key_functor<radixSortKVInPlace>>(int)", Kind.ELEMENTWISE),
        (
            f"{AT}vectorized_elementwise_kernel<4, at::native::topk_softmax_reduce_functor<float>>(int)",
            Kind.ELEMENTWISE,
        ),
        (
            "void mine::copy<flash::FlashAttnFwdSm90<marlin::Marlin<int>, nccl::ncclDevKernel_AllReduce>>(int)",
            Kind.UNKNOWN,
        ),
        ("void mine::copy<int>(marlin_moe_wna16::Marlin<int>, vllm::rms_norm_kernel)", Kind.UNKNOWN),
        ("void cutlass::device_kernel<mine::Something<int>>(x)", Kind.UNKNOWN),
        ("triton_poi_fused_add_moe_forward_shared_slice_1", Kind.ELEMENTWISE),
        ("triton_poi_fused_marlin_gemm_mul_silu_slice_1", Kind.ACTIVATION),
        ("void vllm::reshape_and_cache_flash_kernel<flash::flash_fwd_kernel<int>>(x)", Kind.KV_WRITE),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<1u, 2u>(x)", Kind.UNKNOWN),  # dense or experts? the name should say
        ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x64x128u2_s5_et128x64_m256x64x16_c2x1x1_rM_BN_transOu", Kind.UNKNOWN),
        ("my_fused_moe_kernel", Kind.UNKNOWN),
        ("fused_moe_kernel_of_mine", Kind.UNKNOWN),
    ],
)
def test_arguments_do_not_decide_what_a_function_is(name: str, kind: Kind) -> None:
    assert classify(name).kind is kind


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("fused_moe_kernel", "fused_moe_kernel"),
        ("void vllm::moe::topkGating<8, (vllm::moe::ScoringFunc)0>(int const*)", "vllm::moe::topkGating"),
        ("void (anonymous namespace)::f<(anonymous namespace)::K<1>, true>(x)", "f"),
        ("void at::native::<unnamed>::f<at::native::<unnamed>::X>(T1 *)", "at::native::f"),
        ("std::enable_if<(((8)>(0)))&&v::T<c::B>::exists, void>::type v::f<c::B, 8>(c::B*)", "v::f"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(int)", "internal::gemvx::kernel"),
        ("void a::f<&(c::B v::g<c::B>(c::B const&)), (E)0>(int)", "a::f"),
        ("unsigned long a::B<int>::C<long>::f(int)", "a::B::C::f"),
        ("void a::f<x::{lambda(int)#1}::operator()() const::{lambda(float)#2}>(int)", "a::f"),
        ("a::B<int>::operator()(int) const", "a::B::operator()"),
        ("void a::f<b::C<1, 2, b::D<(int)3", "a::f"),  # cut short
        ("_ZN7cutlass13device_kernelINS_4gemm6kernelE", "cutlass::device_kernel"),
        (
            "_ZN64_GLOBAL__N__1234567890_12_some_file_cu_0123456789abcdef_0123456714kernel_of_fileIiEvT_",
            "kernel_of_file",
        ),
        ("_Z4funcIiEvT_", "func"),
        ("_Z", "_Z"),
        ("", ""),
        ("<", ""),
        ("()", ""),
    ],
)
def test_own_name(name: str, own: str) -> None:
    assert own_name(name) == own
