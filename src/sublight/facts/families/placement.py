"""Which layers are of which kind: mixture of experts or dense, and how far their attention looks.

Releases say where the experts are in five ways, sometimes in two that disagree.
"""

from collections.abc import Collection

from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory


def moe_layers(fields: Fields, inventory: Inventory) -> list[int]:
    """Layers whose MLP is a mixture of experts.

    Read in this order; the first field that is there decides, and a later one that disagrees is reported:
    `mlp_layer_types` (a name a layer; Transformers >= 5.10 writes it), `moe_layer_freq` as a list of 0 and 1,
    `mlp_only_layers` with `decoder_sparse_step` (Qwen), `first_k_dense_replace` with `moe_layer_freq` as a step
    (DeepSeek, GLM).
    """
    count = inventory.layers
    answers: list[tuple[str, list[int]]] = []
    for read in (_by_name, _by_list, _by_step, _by_prefix):
        answer = read(fields, count)
        if answer is not None:
            answers.append(answer)
    if not answers:
        return list(range(count))
    field, chosen = answers[0]
    for other, layers in answers[1:]:
        if layers != chosen:
            inventory.note(
                "warn",
                "placement of MoE layers",
                f"{field} gives {len(chosen)} MoE layers, {other} gives {len(layers)}; {field} was used",
            )
    return chosen


Answer = tuple[str, list[int]] | None


def _by_name(fields: Fields, count: int) -> Answer:
    names = fields.names("mlp_layer_types", count)
    if names is None:
        return None
    unknown = set(names) - {"dense", "sparse"}
    if unknown:
        raise fields.error(f"mlp_layer_types holds {sorted(unknown)}", '"dense" or "sparse" for each layer')
    return "mlp_layer_types", [i for i, name in enumerate(names) if name == "sparse"]


def _by_list(fields: Fields, count: int) -> Answer:
    if not isinstance(fields.data.get("moe_layer_freq"), list):
        return None
    flags = fields.sizes("moe_layer_freq", count) or []
    return "moe_layer_freq", [i for i, flag in enumerate(flags) if flag]


def _by_step(fields: Fields, count: int) -> Answer:
    if "mlp_only_layers" not in fields and "decoder_sparse_step" not in fields:
        return None
    dense = set(fields.sizes("mlp_only_layers") or [])
    beyond = [i for i in dense if i >= count]
    if beyond:
        raise fields.error(f"mlp_only_layers names layer {beyond[0]} of {count}", "layers that the model has")
    step = fields.size("decoder_sparse_step", default=1)
    return "mlp_only_layers and decoder_sparse_step", [
        i for i in range(count) if i not in dense and (i + 1) % step == 0
    ]


def _by_prefix(fields: Fields, count: int) -> Answer:
    if "first_k_dense_replace" not in fields:
        return None
    first = fields.size("first_k_dense_replace", least=0)
    if first > count:
        raise fields.error(f"first_k_dense_replace is {first} of {count} layers", "no more dense layers than layers")
    step = 1 if isinstance(fields.data.get("moe_layer_freq"), list) else fields.size("moe_layer_freq", default=1)
    return "first_k_dense_replace", [i for i in range(first, count) if i % step == 0]


def layers_by_type(
    fields: Fields, inventory: Inventory, types: Collection[str], key: str = "layer_types"
) -> dict[str, list[int]] | None:
    """The layers of each type that `key` names, one name a layer; None when the field is absent."""
    names = fields.names(key, inventory.layers)
    if names is None:
        return None
    unknown = sorted(set(names) - set(types))
    if unknown:
        wanted = " or ".join(f'"{name}"' for name in types)
        raise fields.error(f"{key} holds {', '.join(map(repr, unknown))}", f"{wanted} for each layer")
    return {type_: [i for i, name in enumerate(names) if name == type_] for type_ in types}


def every(step: int, count: int) -> list[int]:
    """The last of every `step` layers: 3, 7, 11 for a step of 4."""
    return list(range(step - 1, count, step))


def sliding_layers(fields: Fields, inventory: Inventory) -> tuple[int | None, list[int]]:
    """The window of Qwen2 and Qwen3, and the layers that it limits.

    It counts only where `use_sliding_window` says so, and then from layer `max_window_layers` on, unless `layer_types`
    names the layers (transformers, configuration_qwen2.py). No released model uses it.
    """
    if not fields.flag("use_sliding_window") or "sliding_window" not in fields:
        return None, []
    window = fields.size("sliding_window")
    by_type = layers_by_type(fields, inventory, ("full_attention", "sliding_attention"))
    if by_type is not None:
        return window, by_type["sliding_attention"]
    return window, list(range(fields.size("max_window_layers", least=0), inventory.layers))
