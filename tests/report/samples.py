"""Documents that the tests of several renderers show: a realistic page, and names that try to break out of it."""

from sublight.report.blocks import (
    Bar,
    Bars,
    Cell,
    Code,
    Column,
    Curve,
    Curves,
    Document,
    Facts,
    Heading,
    Headline,
    Line,
    Listing,
    Mark,
    Note,
    Paragraph,
    Segment,
    Step,
    Table,
    Waterfall,
)


def row(*texts: str, kind: str = "row", tones: str = "") -> Line:
    """A line from bare texts; `tones` has one letter a cell: g(ood), w(arn), b(ad), m(uted), s(trong), . (plain)."""
    names = {"g": "good", "w": "warn", "b": "bad", "m": "muted", "s": "strong", ".": "plain"}
    cells = tuple(
        Cell(text, names[tone])  # type: ignore[arg-type]
        for text, tone in zip(texts, tones.ljust(len(texts), "."), strict=True)
    )
    return Line(cells, kind)  # type: ignore[arg-type]


ROWS = Table(
    columns=(
        Column("row"),
        Column("calls", "right", 2),
        Column("format", "left", 3),
        Column("bytes/step", "right", 1),
        Column("floor ms", "right"),
        Column("practical ms", "right", 1),
        Column("measured ms", "right"),
        Column("gap ms", "right"),
        Column("bound by", "left", 2),
    ),
    lines=(
        row("attention projections", *[""] * 8, kind="group"),
        row("q_a + kv_a", "78", "BF16", "2.52 GB", "1.62", "1.80", "2.31", "0.69", "memory"),
        row("q_b", "78", "BF16", "654 MB", "0.42", "0.71", "0.98", "0.56", "memory"),
        row("W_UK absorb + W_UV", "156", "BF16", "286 MB", "0.18", "0.66", "1.72", "1.54", "launch", tones=".......w"),
        row("o_proj", "78", "BF16", "1.96 GB", "1.27", "1.44", "1.60", "0.33", "memory"),
        row("attention core", *[""] * 8, kind="group"),
        row("attention", "78", "BF16 KV", "184 MB", "0.12", "0.52", "0.87", "0.75", "memory"),
        row("routed experts, 8 of 256, with a name that is quite long", *[""] * 8, kind="group"),
        row("router", "75", "BF16", "236 MB", "0.15", "0.40", "0.62", "0.47", "memory"),
        row("routed experts", "75", "NVFP4", "1.59 GB", "1.03", "1.41", "8.02", "6.99", "memory", tones=".......b"),
        row("shared expert", "75", "NVFP4", "199 MB", "0.13", "0.38", "0.55", "0.42", "memory"),
        row("collectives", *[""] * 8, kind="group"),
        row("all-reduce after attention", "78", "", "0.96 MB", "0.86", "0.86", "4.10", "3.24", "link"),
        row("all-reduce after MLP/MoE", "78", "", "0.96 MB", "0.86", "0.86", "4.08", "3.22", "link"),
        row("no row of the model", *[""] * 8, kind="group"),
        row("unknown", "", "", "", "", "", "1.93", "1.93", "", tones="w.....ww"),
        row("idle", "", "", "", "", "", "6.72", "6.72", "", tones="w.....ww"),
        row("step", "", "", "8.58 GB", "6.64", "9.04", "33.50", "26.86", "", kind="total"),
    ),
    caption="One rank of eight, one decode step at batch 1 and 8,192 tokens of context.",
)

WATERFALL = Waterfall(
    "From the floor to what was measured",
    (
        Step("floor", 6.64, "6.64 ms"),
        Step("routed experts", 6.99, "+6.99 ms", note="CUTLASS grouped GEMM runs 12 % of the bandwidth"),
        Step("all-reduces", 6.46, "+6.46 ms", note="NCCL ring instead of one-shot over PCIe"),
        Step("idle", 6.72, "+6.72 ms", note="the host launches kernel by kernel: no CUDA graph"),
        Step("small kernels", 4.92, "+4.92 ms"),
        Step("overlap", -0.16, "-0.16 ms", note="hidden under other work"),
        Step("unknown", 1.93, "+1.93 ms", "unknown"),
        Step("measured", 33.5, "33.50 ms", "total"),
    ),
    "Each step is what would be saved if that row alone ran at its floor.",
)

BARS = Bars(
    "Three numbers for one step",
    ("weights", "cache", "collectives", "launches"),
    (
        Bar("naive", (Segment("weights", 3.2, "3.20 ms"),), "3.20 ms"),
        Bar(
            "roofline",
            (
                Segment("weights", 4.8, "4.80 ms"),
                Segment("cache", 0.12, "0.12 ms"),
                Segment("collectives", 1.72, "1.72 ms"),
            ),
            "6.64 ms",
        ),
        Bar(
            "practical",
            (
                Segment("weights", 5.2, "5.20 ms"),
                Segment("cache", 0.52, "0.52 ms"),
                Segment("collectives", 1.72, "1.72 ms"),
                Segment("launches", 1.6, "1.60 ms"),
            ),
            "9.04 ms",
        ),
    ),
)

CURVES = Curves(
    "Floor against context",
    "context",
    "ms per token",
    (
        Curve("sparse attention (DSA)", tuple((float(2**n), 6.4 + 0.02 * 2 ** (n - 10)) for n in range(10, 18))),
        Curve("dense fallback", tuple((float(2**n), 6.4 + 0.06 * 2 ** (n - 10)) for n in range(10, 18))),
    ),
    (Mark(2048.0, "the top-2048 index starts to cut"),),
    log_x=True,
    log_y=True,
    caption="Batch 1, tensor parallel 8.",
)

PAGE = Document(
    "GLM-5-NVFP4 on 8x RTX PRO 6000 Blackwell Server",
    (
        Headline(
            (
                ("floor", "6.64 ms", "what a rank must read, and 157 collectives"),
                ("measured", "33.5 ms", "median of 412 decode steps in rank0.json.gz"),
                ("gap", "26.9 ms", "5.0x: of which 25.0 ms has a name"),
            )
        ),
        Facts(
            (
                ("model", Cell("zai-org/GLM-5, NVFP4 experts, BF16 attention")),
                ("parallelism", Cell("TP 8, EP off")),
                ("workload", Cell("batch 1, 8,192 tokens of context, no speculation")),
                ("bandwidth", Cell("1,597 GB/s (data sheet)", note="GDDR7, 512 bit, 24.95 Gbit/s")),
            )
        ),
        Heading("Where the step goes"),
        WATERFALL,
        Heading("Row by row"),
        Paragraph(
            "A row's gap is the wall time that would be saved if it alone ran at its floor; work that is hidden under "
            "other work is shown and not counted."
        ),
        ROWS,
        BARS,
        Note("1.93 ms of the step matched no rule; it is shown as unknown and is not spread over the rows.", "warn"),
        Heading("What to do next"),
        Listing(
            (
                Cell("Replace the grouped GEMM: sublight.kernels runs this shape in 1.2 ms (6.8 ms saved)."),
                Cell("Switch to the one-shot PCIe all-reduce (5.2 ms saved)."),
                Cell("Capture the decode step in a CUDA graph (up to 6.7 ms saved).", "strong"),
            ),
            ordered=True,
        ),
        Heading("Launch line", 3),
        Code(
            "python -m sglang.launch_server --model-path zai-org/GLM-5-NVFP4 --tp 8 --quantization modelopt_fp4 "
            "--moe-runner-backend flashinfer_cutlass --disable-shared-experts-fusion "
            "--json-model-override-args '{\"index topk\": 2048}' --port 30000"
        ),
        CURVES,
        Note("Numbers are per rank.", "info"),
        Note("rank 3 has no trace: its file ends in the middle of an event.", "error"),
    ),
    "Written by sublight 0.1.0 from rank0.json.gz.",
)
