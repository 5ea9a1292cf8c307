"""What a rank holds, and how many tokens fit beside it."""

import pytest

from sublight.facts.gpu import get_gpu
from sublight.facts.model import read_model
from sublight.facts.workload import Layout, Speculation, Workload
from sublight.limits.memory import memory_fit


def test_glm5_on_eight_cards() -> None:
    """The engine's own log: 100,165 B a token, 57.06 GiB of weights a card with the MTP layer loaded."""
    model, gpu = read_model("glm-5-nvfp4"), get_gpu("rtx-pro-6000-server")
    fit = memory_fit(model, gpu, Workload(layout=Layout(tp=8)))
    assert fit.kv_bytes_per_token == 78 * (1152 + 132) == 100152
    assert fit.fits is True
    assert fit.tokens == int((97887 * 2**20 - fit.weights_bytes) / 100152)
    drafting = memory_fit(
        model, gpu, Workload(layout=Layout(tp=8), speculation=Speculation(draft_length=1, verify_width=2))
    )
    assert drafting.weights_bytes / 2**30 == pytest.approx(57.06, rel=0.005)


def test_one_card_is_too_small() -> None:
    fit = memory_fit(read_model("glm-5-nvfp4"), get_gpu("rtx-pro-6000-server"), Workload())
    assert fit.weights_bytes == pytest.approx(440.9e9, rel=1e-4)
    assert (fit.fits, fit.tokens) == (False, 0)


def test_reserved_is_not_read() -> None:
    """gpt-oss-120b: engines reserve 73,728 B a token in all 36 layers; only the 18 without a window go on growing."""
    fit = memory_fit(read_model("gpt-oss-120b"), get_gpu("h200"), Workload())
    assert fit.kv_bytes_per_token == 73728
    assert fit.kv_bytes_per_token_windowed == 36864


def test_a_state_is_kept_once_a_sequence() -> None:
    """Qwen3.5-397B: 45 of 60 layers keep 188.7 MB of FP32 state, and the last columns of a convolution."""
    fit = memory_fit(read_model("qwen3.5-397b-a17b"), get_gpu("b200"), Workload())
    recurrent = 45 * 64 * 128 * 128 * 4
    convolution = 45 * 3 * (2 * 16 * 128 + 64 * 128) * 2
    assert recurrent / 1e6 == pytest.approx(188.7, abs=0.05)
    assert fit.state_bytes_per_sequence == recurrent + convolution
    assert fit.kv_bytes_per_token == 15 * 2 * 2 * 256 * 2


def test_pipeline_stages_hold_their_layers() -> None:
    model, gpu = read_model("glm-5-nvfp4"), get_gpu("h200")
    whole = memory_fit(model, gpu, Workload(layout=Layout(tp=4)))
    halves = memory_fit(model, gpu, Workload(layout=Layout(tp=4, pp=2)))
    assert halves.kv_bytes_per_token == whole.kv_bytes_per_token / 2
    ends = 2 * 154880 * 6144 * 2 / 4
    assert halves.weights_bytes == pytest.approx((whole.weights_bytes - ends) / 2 + ends / 2, rel=1e-3)
