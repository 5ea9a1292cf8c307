"""Parts that several families are made of. Each adds its tensors, and says which row of the step reads them."""

from collections.abc import Sequence

from sublight.facts.fields import Fields
from sublight.facts.formats import FP32, Format
from sublight.facts.inventory import Inventory, Moe
from sublight.facts.tensors import Cut, Part


def ends(
    fields: Fields,
    inventory: Inventory,
    *,
    tied_by_default: bool = False,
    embedding: str = "embed_tokens",
    norm: str = "norm",
    layers: int | None = None,
) -> None:
    """Embedding, final norm and lm_head, and the sizes every other part needs.

    Args:
        tied_by_default: what the reference configuration assumes where `tie_word_embeddings` is absent.
        embedding, norm: their names below the root.
        layers: how many, where another field than `num_hidden_layers` says it.
    """
    hidden, vocab = fields.size("hidden_size"), fields.size("vocab_size")
    inventory.hidden, inventory.vocab = hidden, vocab
    inventory.layers = layers or fields.size("num_hidden_layers")
    inventory.tied = fields.flag("tie_word_embeddings", tied_by_default)
    inventory.matrix(
        f"{inventory.root}.{embedding}",
        (vocab, hidden),
        "embedding",
        "embedding",
        cut=Cut(0, vocab),
        read="one row a token",
        module_class="Embedding",
    )
    inventory.vector(f"{inventory.root}.{norm}", (hidden,))
    head(inventory)


def head(inventory: Inventory) -> None:
    """lm_head: its own matrix, or the embedding read whole when the two are tied."""
    inventory.matrix(
        f"{inventory.head_root}lm_head",
        (inventory.vocab, inventory.hidden),
        "head",
        "head",
        cut=Cut(0, inventory.vocab),
        tied=inventory.tied,
        # A tied head is stored as the embedding is, and no scheme quantises an embedding.
        module_class="Linear",
        fixed=inventory.tied,
    )


def gated_mlp(
    inventory: Inventory,
    path: str,
    width: int,
    layers: Sequence[int],
    row: str,
    part: Part,
    *,
    hidden: int | None = None,
    copies: int = 1,
    names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj"),
    bias: bool = False,
) -> None:
    """An MLP of gate, up and down (SwiGLU and its kin), or of up and down when only two names are given."""
    hidden = hidden or inventory.hidden
    *inward, down = names
    for name in inward:
        inventory.matrix(
            inventory.layer(f"{path}.{name}"),
            (width, hidden),
            row,
            part,
            layers=layers,
            cut=Cut(0, width),
            copies=copies,
            read="routed experts" if part == "experts" else "every step",
            bias=bias,
        )
    inventory.matrix(
        inventory.layer(f"{path}.{down}"),
        (hidden, width),
        row,
        part,
        layers=layers,
        cut=Cut(1, width),
        copies=copies,
        read="routed experts" if part == "experts" else "every step",
        bias=bias,
    )


def stacked_experts(
    inventory: Inventory, path: str, moe: Moe, layers: Sequence[int], *, always: bool = False, bias: bool = False
) -> None:
    """Routed experts that the release stores as two tensors a layer, gate and up in one.

    Quantised releases take such a stack apart: ModelOpt and llm-compressor write `experts.0.gate_proj` and so on, and
    their rules name either those or the `experts` module above them. The axes of the stack differ between families
    (Llama-4, gpt-oss and Qwen3-VL keep the input first); the shapes here are (out, in) all the same.

    Args:
        always: the stack stays whole in quantised releases too (gpt-oss in MXFP4).
        bias: both tensors have one an expert, beside them as `gate_up_proj_bias` and `down_proj_bias`.
    """
    if inventory.quantization.method != "none" and not always:
        gated_mlp(inventory, f"{path}.{{expert}}", moe.width, layers, "moe.experts", "experts", copies=moe.experts)
        return
    shapes = {
        "gate_up_proj": (2 * moe.width, inventory.hidden, Cut(0, moe.width)),
        "down_proj": (inventory.hidden, moe.width, Cut(1, moe.width)),
    }
    for name, (out, into, cut) in shapes.items():
        inventory.matrix(
            inventory.layer(f"{path}.{name}"),
            (out, into),
            "moe.experts",
            "experts",
            layers=layers,
            cut=cut,
            copies=moe.experts,
            read="routed experts",
        )
        if bias:
            inventory.vector(
                inventory.layer(path),
                (out,),
                "moe.experts",
                "experts",
                layers=layers,
                leaf=f"{name}_bias",
                # As for any bias: of a row-parallel matrix it is added once, after the reduction.
                cut=cut if cut.axis == 0 else None,
                copies=moe.experts,
                read="routed experts",
            )


def router(
    inventory: Inventory,
    path: str,
    moe: Moe,
    layers: Sequence[int],
    *,
    linear: bool,
    bias: str = "",
    bias_format: Format = FP32,
    stored: Format | None = None,
) -> None:
    """The router's matrix [experts, hidden], whole on every rank, and its bias where there is one.

    Args:
        linear: the reference model holds it in an nn.Linear, which quantisation schemes may name.
        bias: name of the bias, with its module ("mlp.gate.e_score_correction_bias"); "" for none.
        bias_format: a correction bias is kept in FP32.
        stored: the matrix's own format where releases keep it in another than the rest.
    """
    inventory.matrix(
        inventory.layer(path),
        (moe.experts, inventory.hidden),
        "moe.router",
        "router",
        layers=layers,
        module_class="Linear" if linear else "Gate",
        stored=stored,
    )
    if bias:
        module, _, leaf = bias.rpartition(".")
        inventory.vector(
            inventory.layer(module),
            (moe.experts,),
            "moe.router",
            "router",
            layers=layers,
            leaf=leaf,
            format=bias_format,
        )


def two_norms(inventory: Inventory, layers: Sequence[int]) -> None:
    """The norms before attention and before the MLP that nearly every layer has."""
    inventory.norm("input_layernorm", inventory.hidden, layers)
    inventory.norm("post_attention_layernorm", inventory.hidden, layers)


def next_token_input(inventory: Inventory, layers: Sequence[int]) -> None:
    """What DeepSeek-like MTP layers have beside a layer's own parts: the embedding of the drafted token and the hidden
    state, each normalised, side by side through one matrix, and a norm before the shared lm_head.

    Releases store copies of the embedding and of lm_head with it; they are the model's own, and not counted again.
    """
    hidden = inventory.hidden
    inventory.matrix(
        inventory.layer("eh_proj"), (hidden, 2 * hidden), "mtp.in", "replicated", layers=layers, fixed=True
    )
    for name in ("enorm", "hnorm", "shared_head.norm"):
        inventory.norm(name, hidden, layers)
