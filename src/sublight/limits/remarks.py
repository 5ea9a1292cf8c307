"""What a reader should know of a floor beside its numbers: of the workload, the card and how the model is cut."""

from sublight.facts.gpu import Gpu
from sublight.facts.model import Model
from sublight.facts.quantization.base import Finding
from sublight.facts.workload import Workload
from sublight.records import Evidence
from sublight.rows import ROWS
from sublight.units import counted


def workload_findings(model: Model, workload: Workload, gpu: Gpu, step_bytes: float) -> list[Finding]:
    """All of it. `step_bytes` is what a rank reads from memory in the step."""
    found = []
    declared = model.quantization.kv_cache
    if declared and declared != workload.kv_dtype:
        found.append(
            Finding(
                "info",
                "KV cache",
                f"the checkpoint declares {declared.upper()} for its KV cache; counted as {workload.kv_dtype} "
                f"(--kv-dtype {declared} counts it so)",
            )
        )
    if gpu.l2_bytes.value is not None and step_bytes < gpu.l2_bytes.value:
        found.append(
            Finding(
                "warn",
                "L2 cache",
                f"a rank reads {step_bytes / 1e6:.1f} MB a step, less than the {gpu.l2_bytes.value / 1e6:.0f} MB of "
                "L2: what stays there from step to step need not come from memory, and the floor may be beaten",
            )
        )
    sheet = gpu.catalogued("memory_bandwidth_bytes_per_s")
    if sheet.note and gpu.memory_bandwidth_bytes_per_s == sheet:
        found.append(Finding("info", gpu.name, f"bandwidth: {sheet.note}"))
    uncertain = [
        name
        for name, figure in (("bandwidth", gpu.memory_bandwidth_bytes_per_s), ("BF16 rate", gpu.bf16_flops_per_s))
        if figure.evidence is Evidence.UNCERTAIN
    ]
    if uncertain:
        found.append(
            Finding("warn", gpu.name, f"{' and '.join(uncertain)}: from an uncertain source, check before use")
        )
    padded = -(-model.vocab // 64) * 64
    if workload.layout.tp > 1 and model.vocab % 64:
        found.append(
            Finding(
                "info",
                "vocabulary",
                f"engines pad {model.vocab:,} rows to {padded:,} (a multiple of 64) before they cut lm_head: "
                f"{(padded / model.vocab - 1) * 100:.2f} % more of it is read than the floor counts",
            )
        )
    return found + _uneven_heads(model, workload)


def _uneven_heads(model: Model, workload: Workload) -> list[Finding]:
    """Heads of linear attention and groups of Mamba that a layout does not deal out evenly: engines refuse those."""
    ranks = workload.layout.attention_tp
    units = {
        t.cut.units: ROWS[t.row].title for t in model.main if t.cut is not None and t.row in ("linear.out", "mamba.out")
    }
    return [
        Finding(
            "warn",
            "layout",
            f"{title}: {counted(count, 'head or group', 'heads or groups')} over {counted(ranks, 'rank')} of attention"
            "; engines refuse a layout that does not deal them out evenly, and the floor counts whole ones, rounded up",
        )
        for count, title in units.items()
        if count % ranks
    ]
