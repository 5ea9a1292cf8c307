"""A time cannot be written down without its agreement, its clock, and where it was taken."""

import msgspec
import pytest

from sublight.bench.record.kernels import Ceilings, KernelBench, Result, Shape
from sublight.bench.record.measurement import Agreed, Environment, Measurement, Timing, clock_for
from sublight.bench.record.ops import OpRow, Part
from sublight.errors import RecordError
from sublight.records import decode, encode

WHERE = Environment(device="cuda", title="NVIDIA H200", card="h200", target="sm_90", l2_bytes=60 << 20)


def agreed(**changes: object) -> Agreed:
    fields: dict[str, object] = {
        "relative_error": 1.9e-3,
        "tolerance": 3e-3,
        "against": "the oracle",
        "modes": ("eager", "graph"),
        "runs": 8,
        "where": "1 token",
    }
    return Agreed(**(fields | changes))  # type: ignore[arg-type]


def timing(seconds: float = 10e-6) -> Timing:
    return Timing(median_s=seconds, low_s=seconds, high_s=seconds, rounds=7, calls=32, settled=True)


def measurement(seconds: float = 10e-6, **changes: object) -> Measurement:
    fields: dict[str, object] = {
        "agreed": agreed(),
        "clock": "CUDA graph replay",
        "environment": WHERE.key,
        "timing": timing(seconds),
        "sets": 32,
        "cold": True,
    }
    return Measurement(**(fields | changes))  # type: ignore[arg-type]


def test_what_a_time_cannot_be_without() -> None:
    with pytest.raises(TypeError, match="agreed"):
        Measurement(clock="wall clock", environment="x", timing=timing(), sets=1, cold=None)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="needs the environment"):
        measurement(environment="")
    with pytest.raises(ValueError, match="'stopwatch' is no clock"):
        measurement(clock="stopwatch")
    with pytest.raises(ValueError, match=r"does not agree within 0\.003"):
        agreed(relative_error=4e-3)
    with pytest.raises(ValueError, match="does not agree"):
        agreed(relative_error=float("nan"))


def test_a_graph_is_timed_only_where_a_graph_was_compared() -> None:
    with pytest.raises(ValueError, match="a mode in which nothing was compared: eager"):
        measurement(agreed=agreed(modes=("eager",)))
    assert measurement(agreed=agreed(modes=("eager",)), clock="CUDA events").seconds == 10e-6


def test_a_clock_for_each_device() -> None:
    assert clock_for("cuda") == "CUDA graph replay"
    assert clock_for("cuda", eager=True) == "CUDA events"
    assert clock_for("cpu") == clock_for("cpu", eager=True) == "wall clock"


def test_a_result_is_a_time_or_a_reason() -> None:
    with pytest.raises(ValueError, match="or the reason"):
        Result(name="a", kind="peer", bytes=1.0)
    with pytest.raises(ValueError, match="or the reason"):
        Result(name="a", kind="peer", bytes=1.0, measurement=measurement(), reason="and yet")


def test_a_row_has_a_time_only_if_all_its_parts_have() -> None:
    timed = Part(what="a", library="x", count=3, bytes=1.0, measurement=measurement(2e-6))
    missing = Part(what="b", library="", count=1, bytes=1.0, reason="no kernel")
    assert OpRow(id="norms", parts=(timed, timed)).step_s == pytest.approx(12e-6)
    assert OpRow(id="norms", parts=(timed, missing)).step_s is None
    assert OpRow(id="norms", parts=(timed, missing)).reason == "no kernel"


def test_the_floor_of_a_read() -> None:
    ceilings = Ceilings(copy_bytes_per_s=4.2e12, read_s=((1e6, 2e-6), (3e6, 3e-6), (100e6, 25e-6)), read_by="a kernel")
    assert ceilings.floor_s(2e6) == pytest.approx(2.5e-6)
    assert ceilings.floor_s(1e3) == pytest.approx(2e-6)
    assert ceilings.floor_s(200e6) == pytest.approx(50e-6)
    assert ceilings.best_bytes_per_s == pytest.approx(4.2e12)


def bench(where: str = WHERE.key) -> KernelBench:
    ceilings = Ceilings(copy_bytes_per_s=4.2e12, read_s=((1e6, 2e-6), (3e6, 3e-6)), read_by="a kernel")
    result = Result(name="decode", kind="kernel", bytes=21e6, measurement=measurement(environment=where))
    shape = Shape(
        tokens=1, experts_hit=8.0, bytes=21e6, copy_s=5e-6, floor_s=6.7e-6, routing="uniform", results=(result,)
    )
    return KernelBench(
        environment=WHERE,
        seed=0,
        model="m",
        layout="TP8",
        problem="p",
        weight_format="nvfp4",
        ceilings=ceilings,
        shapes=(shape,),
        absent={},
    )


def test_records_come_back_and_edited_ones_do_not() -> None:
    types = {"bench-kernels": KernelBench}
    assert decode(encode(bench()), types) == bench()
    with pytest.raises(RecordError, match="a time of environment elsewhere"):
        decode(encode(bench("elsewhere")), types)
    wrong = encode(bench()).replace(b'"relative_error": 0.0019', b'"relative_error": 0.9')
    with pytest.raises(RecordError, match="does not agree"):
        decode(wrong, types)


def test_clocks_that_drift_leave_the_environment_the_same() -> None:
    warm = msgspec.structs.replace(WHERE, clocks_mhz={"sm": 1980.0}, notes=("hot",))
    assert warm.key == WHERE.key
    assert msgspec.structs.replace(WHERE, driver="581").key != WHERE.key
