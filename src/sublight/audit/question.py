"""From what a person names (a checkpoint, a card, a layout) to the target that every rung is asked for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sublight.audit.replies import Card, Cards
from sublight.audit.target import Target, capability, rank_shape
from sublight.errors import UnknownNameError, UsageError
from sublight.facts.formats import NVFP4, NVFP4_W4A16, Format
from sublight.facts.gpu import Gpu, get_gpu, gpu_names, parse_gpus
from sublight.facts.model import Model, read_model
from sublight.facts.workload import Layout, Workload, check_fit
from sublight.files import is_present, read_small_file

_CARD_HINT = "--gpu rtx-pro-6000-server, or another name that `sublight limit --list` shows"


class Judged(msgspec.Struct, frozen=True):
    """The card to judge for, how many, and how it was chosen."""

    gpu: Gpu
    count: int
    why: str


def card(name: str | None, cards: Cards | None) -> Judged:
    """The card that was named, else the machine's own. Raises UsageError when neither is known."""
    if name is not None:
        count, gpu = parse_gpus(name)
        return Judged(gpu, count, "named with --gpu")
    own = cards.best if cards else ()
    if not own:
        reason = "nobody could be asked" if cards is None else cards.smi_error or cards.driver_error or "it has none"
        raise UsageError(
            "auditing for a card", f"no card was named and the machine's own is not known ({reason})", _CARD_HINT
        )
    kinds = {(c.name, c.major, c.minor) for c in own}
    if len(kinds) > 1:
        names = ", ".join(sorted(str(c.name) for c in own))
        raise UsageError("auditing for a card", f"the machine has several kinds: {names}", "--gpu with one of them")
    return Judged(_own(own[0]), len(own), "the machine's own")


def _own(found: Card) -> Gpu:
    """The catalogue's card of the name the driver gives. Its capability has to agree with the driver's."""
    try:
        gpu = get_gpu(found.name or "")
    except (UnknownNameError, UsageError) as error:
        raise UsageError(f"auditing for {found.name}", error.found, f"{error.hint}; {_CARD_HINT}") from None
    told = (found.major, found.minor)
    if None not in told and capability(gpu) != told:
        raise UsageError(
            f"auditing for {found.name}",
            f"the driver says compute capability {found.major}.{found.minor}, the catalogue {gpu.target}",
            _CARD_HINT,
        )
    return gpu


class Question(msgspec.Struct, frozen=True):
    """The target, and what it was made from."""

    target: Target
    model: Model
    gpu: Gpu

    @property
    def shared_memory_bytes(self) -> float | None:
        """Of one block, as the card's data sheet has it."""
        return self.gpu.shared_memory_per_block_bytes.value


def ask(model_source: str, judged: Judged, layout: Layout, *, a2a: str = "none", speculative: bool = False) -> Question:
    """The question for a model on a card.

    Raises SublightError for a model or a card that cannot be judged, and for a layout the model cannot be cut into.
    """
    model = read_model(model_source)
    check_fit(model, Workload(layout=layout))
    config = configuration(model_source)
    capable = capability(judged.gpu)
    if capable is None:
        names = [name for name in gpu_names() if capability(get_gpu(name)) is not None]
        raise UsageError(
            f"auditing for {judged.gpu.name}",
            f"its target is {judged.gpu.target}; gates are read for NVIDIA's compute capabilities",
            f"--gpu {names[0]}",
        )
    stored = expert_format(model)
    made = Target(
        model=model.name,
        model_type=model.model_type,
        architecture=_architecture(config),
        method=model.quantization.method,
        expert_format=_weights(stored),
        activation_format=_activations(stored),
        activation=_activation(config),
        swiglu_limit=_swiglu_limit(config),
        shape=rank_shape(model, layout),
        gpu=judged.gpu.name,
        compute_capability=capable,
        gpus=max(layout.gpus, 1),
        layout=layout,
        a2a=a2a,
        speculative=speculative,
        heads=_heads(config),
    )
    return Question(made, model, judged.gpu)


def expert_format(model: Model) -> Format:
    """How the routed experts are stored; of a dense model its MLP; the one with most values where there are several."""
    for row in ("moe.experts", "mlp.dense"):
        sizes: dict[str, float] = {}
        formats: dict[str, Format] = {}
        for tensor in model.main:
            if tensor.row == row:
                formats[tensor.format.name] = tensor.format
                sizes[tensor.format.name] = sizes.get(tensor.format.name, 0) + tensor.parameters
        if sizes:
            return formats[max(sizes, key=lambda name: sizes[name])]
    raise UsageError(f"auditing for {model.name}", "it has neither experts nor an MLP", "another model")


def _weights(stored: Format) -> str:
    return NVFP4.title if stored is NVFP4_W4A16 else stored.title


def _activations(stored: Format) -> str:
    """What the format of the weights implies: four-bit products take activations of the same format."""
    if stored.compute == "fp4":
        return stored.title
    return {"fp8": "FP8", "bf16": "BF16"}.get(stored.compute, "")


def configuration(model_source: str) -> Mapping[str, Any]:
    """The fields of config.json as they stand there, also those that no size follows from."""
    path = Path(model_source)
    if path.is_dir():
        path = path / "config.json"
    if is_present(path):
        data = read_small_file(path, f"reading {path}", "the file as the model's release has it")
        decoded = msgspec.json.decode(data)
        return decoded if isinstance(decoded, dict) else {}
    from sublight.facts.catalogue.models import catalogue_model

    return catalogue_model(model_source).config


def _architecture(config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _inner(config: Mapping[str, Any]) -> dict[str, Any]:
    text = config.get("text_config")
    return {**config, **(text if isinstance(text, dict) else {})}


def _swiglu_limit(config: Mapping[str, Any]) -> float | None:
    limit = _inner(config).get("swiglu_limit")
    return float(limit) if isinstance(limit, int | float) and limit else None


def _heads(config: Mapping[str, Any]) -> int | None:
    heads = _inner(config).get("num_attention_heads")
    return heads if isinstance(heads, int) and heads > 0 else None


def _activation(config: Mapping[str, Any]) -> str:
    fields = _inner(config)
    return str(fields.get("mlp_hidden_act") or fields.get("hidden_act") or fields.get("hidden_activation") or "silu")
