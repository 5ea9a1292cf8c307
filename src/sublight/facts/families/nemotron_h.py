"""Nemotron-H, Nemotron Nano 2, Nemotron-3: layers that are each one mixer: Mamba-2, attention, MLP, or experts.

Shapes from transformers, modeling_nemotron_h.py; MTP from sglang, nemotron_h_mtp.py. Each layer has one norm, attention
has none of its own, and MLPs and experts have two matrices (squared ReLU). With `moe_latent_size` the routed experts
work on a narrower vector, into and out of which every rank projects for itself (sglang nemotron_h.py: replicated).
"""

from collections.abc import Sequence

from sublight.facts.families import parts
from sublight.facts.families.attention import grouped_query_attention
from sublight.facts.families.mamba import mamba2
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory, Moe
from sublight.facts.tensors import Cut
from sublight.units import counted

_UP_DOWN = ("up_proj", "down_proj")
_LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
# Transformers writes its common names from 5.10 on.
_NAMES = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "moe": "moe",
    "mlp": "mlp",
}


def nemotron_h(fields: Fields, inventory: Inventory) -> None:
    kinds = _kinds(fields, inventory, "layers_block_type", "hybrid_override_pattern")
    if kinds is None:
        raise fields.error(
            "it has no layers_block_type or hybrid_override_pattern, so what its layers are is not known",
            "the model's own config.json, whole",
        )
    parts.ends(fields, inventory, embedding="embeddings", norm="norm_f", layers=len(kinds))
    if "num_hidden_layers" in fields and fields.size("num_hidden_layers") != len(kinds):
        raise fields.error(
            f"it names the kind of {counted(len(kinds), 'layer')}, and num_hidden_layers is "
            f"{fields.data['num_hidden_layers']}",
            "a kind for each layer",
        )
    _mixers(fields, inventory, kinds)
    _mtp(fields, inventory)


def _kinds(fields: Fields, inventory: Inventory, names_key: str, letters_key: str) -> list[str] | None:
    """What each layer is: by name, else by letter; None when neither field is there."""
    names, letters = fields.names(names_key), fields.text(letters_key)
    for key, given, known in ((names_key, names or (), _NAMES), (letters_key, letters, _LETTERS)):
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise fields.error(
                f"{key} holds {', '.join(map(repr, unknown))}", "one of " + ", ".join(known) + " for each layer"
            )
    by_letter = [_LETTERS[letter] for letter in letters]
    if names is None:
        return by_letter or None
    by_name = [_NAMES[name] for name in names]
    if by_letter and by_letter != by_name:
        inventory.note("warn", "kinds of layers", f"{names_key} and {letters_key} disagree; {names_key} was used")
    return by_name


def _mixers(fields: Fields, inventory: Inventory, kinds: Sequence[str]) -> None:
    """The layers of the current root, of which `kinds` says what each is."""
    where = {kind: [i for i, k in enumerate(kinds) if k == kind] for kind in _LETTERS.values()}
    inventory.norm("norm", inventory.hidden, range(len(kinds)))
    mamba2(fields, inventory, where["mamba"], "mixer")
    if where["attention"]:
        bias = fields.flag("attention_bias")
        grouped_query_attention(
            fields,
            inventory,
            where["attention"],
            path="mixer",
            head_dim=fields.size("head_dim", "attention_head_dim"),
            bias=bias,
            output_bias=bias,
            window=fields.size("sliding_window") if "sliding_window" in fields else None,
        )
    if where["mlp"]:
        width, bias = fields.size("intermediate_size"), fields.flag("mlp_bias")
        parts.gated_mlp(inventory, "mixer", width, where["mlp"], "mlp.dense", "dense", names=_UP_DOWN, bias=bias)
    if where["moe"]:
        _experts(fields, inventory, where["moe"])


def _experts(fields: Fields, inventory: Inventory, layers: Sequence[int]) -> None:
    moe = Moe(
        experts=fields.size("n_routed_experts"),
        top_k=fields.size("num_experts_per_tok"),
        layers=len(layers),
        width=fields.size("moe_intermediate_size"),
        shared=fields.size("n_shared_experts", default=0, least=0),
        groups=fields.size("n_group", default=1),
        top_groups=fields.size("topk_group", default=1),
    )
    inventory.moe = inventory.moe or moe
    hidden = inventory.hidden
    latent = fields.size("moe_latent_size", default=0, least=0)
    bias = fields.flag("mlp_bias")
    parts.router(inventory, "mixer.gate", moe, layers, linear=False, bias="mixer.gate.e_score_correction_bias")
    parts.gated_mlp(
        inventory,
        "mixer.experts.{expert}",
        moe.width,
        layers,
        "moe.experts",
        "experts",
        hidden=latent or hidden,
        copies=moe.experts,
        names=_UP_DOWN,
    )
    if latent:
        for name, shape in (("fc1_latent_proj", (latent, hidden)), ("fc2_latent_proj", (hidden, latent))):
            inventory.matrix(inventory.layer(f"mixer.{name}"), shape, "moe.latent", "router", layers=layers, bias=bias)
    if moe.shared:
        width = fields.size("moe_shared_expert_intermediate_size") * moe.shared
        path = "mixer.shared_experts"
        parts.gated_mlp(inventory, path, width, layers, "moe.shared", "shared", names=_UP_DOWN, bias=bias)


def _mtp(fields: Fields, inventory: Inventory) -> None:
    """Under their own prefix, a run of layers for each drafted token. The first of a run joins the embedding and the
    hidden state, the last has a norm before the model's own lm_head."""
    steps = fields.size("num_nextn_predict_layers", default=0, least=0)
    if not steps:
        return
    kinds = _kinds(fields, inventory, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    if kinds is None:
        raise fields.error(
            f"it has {steps} MTP layers and no mtp_layers_block_type or mtp_hybrid_override_pattern",
            "the model's own config.json, whole",
        )
    hidden = inventory.hidden
    first = range(0, steps * len(kinds), len(kinds))
    last = [i + len(kinds) - 1 for i in first]
    with inventory.mtp("mtp", modules=steps):
        _mixers(fields, inventory, kinds * steps)
        inventory.matrix(
            inventory.layer("eh_proj"), (hidden, 2 * hidden), "mtp.in", "attention", layers=first, cut=Cut(0, hidden)
        )
        inventory.norm("enorm", hidden, first)
        inventory.norm("hnorm", hidden, first)
        inventory.norm("final_layernorm", hidden, last)
