"""Names of kernels in a line of text: C++ without its arguments, and what a wrapper wraps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.trace.kernels import short_name

COMBINE = "flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>, cute::C<128> >, 5, 256, 1, false, cutlass::arch::Sm90> >"
FORWARD = (
    "flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1> >, 128, float> >"
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (f"void cutlass::device_kernel<{COMBINE}({COMBINE}::Params)", "flash::FlashAttnFwdCombine"),
        (
            f"void cutlass::device_kernel<flash::enable_sm90_or_later<{FORWARD}> >(flash::Params)",
            "flash::FlashAttnFwdSm90",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Collective",
            "flash::FlashAttnFwdSm90",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>(Params)",
            "cutlass_80_wmma_tensorop_bf16_s161616gemm",
        ),
        ("void enclosing::kernel<(4 > 3), 7>(int)", "enclosing::kernel"),
        ("void internal::gemvx::kernel<int, int, __nv_bfloat16, float>(Params)", "internal::gemvx::kernel"),
        ("void enclosing::kernel<128u, float>(int)", "enclosing::kernel"),
        ("fused_moe_kernel", "fused_moe_kernel"),
        ("kernel", "kernel"),
        ("void kernel<>()", "kernel"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


words = st.from_regex(r"[a-z][a-z0-9_]{0,8}_t", fullmatch=True)
own_names = st.lists(words, min_size=1, max_size=3).map("::".join)
constants = st.sampled_from(["0", "true", "(Kind)2", "(4 > 3)", "(sizeof(int) > 2)"])
arguments = st.recursive(
    st.one_of(own_names, constants),
    lambda inner: st.builds(
        lambda name, parts: f"{name}<{', '.join(parts)}{' ' if parts[-1].endswith('>') else ''}>",
        own_names,
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


@given(own=own_names, inside=st.lists(arguments, max_size=3), wrappers=st.lists(own_names, max_size=2))
def test_wrappers_come_off_and_no_bracket_is_left(own: str, inside: list[str], wrappers: list[str]) -> None:
    own += "_own"
    name = f"{own}<{', '.join(inside)}>" if inside else own
    for wrapper in wrappers:
        name = f"{wrapper}::enable_sm90_or_later<{name} >"
    short = short_name(f"void cutlass::device_kernel<{name} >({name}::Params)")
    assert short == (own if len(own) <= 60 else own[:57] + "...")


@given(name=arguments, end=st.integers(1, 200))
def test_a_name_that_was_cut_short_has_one_too(name: str, end: int) -> None:
    whole = f"void cutlass::device_kernel<{name} >(Params)"
    short = short_name(whole[: len("void cutlass::device_kernel<") + end])
    assert short
    assert "<" not in short and ">" not in short
