"""Model: a configuration read into one inventory of tensors and caches."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sublight.errors import ConfigError, InputFileError, UnknownNameError, near_misses
from sublight.facts.families import FAMILIES
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory, Moe
from sublight.facts.json_object import read_object
from sublight.facts.quantization.base import Finding, Quantization
from sublight.facts.tensors import Cache, Stage, Tensor
from sublight.files import is_present
from sublight.units import show_bytes

if TYPE_CHECKING:
    from sublight.facts.checkpoint import Checkpoint

# How a multimodal wrapper names its language model in the checkpoint: (prefix of the layers, prefix of lm_head).
# Needed because quantisation rules are written in those names.
_WRAPPERS: dict[str, tuple[str, str]] = {
    "kimi_k25": ("language_model.model", "language_model."),
    "llama4": ("language_model.model", "language_model."),
    "gemma4": ("model.language_model", ""),
    "qwen3_5_moe": ("model.language_model", ""),
    "qwen3_5": ("model.language_model", ""),
    "qwen3_vl_moe": ("model.language_model", ""),
    "qwen3_vl": ("model.language_model", ""),
}
_ROOTS = {"nemotron_h": "backbone"}
_MOST_EXPERTS_IN_ALL, _MOST_EXPERTS_ASKED = 500_000, 100_000


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint holds and what decoding reads of it.

    Attributes:
        name: catalogue name, or the name of the folder or file.
        source: where the facts were read.
        model_type: as the configuration says.
        hidden, layers, vocab, heads, kv_heads: the sizes everything else follows from. `kv_heads` is 1 for a latent
            cache that all heads share.
        moe: the routed experts, or None for a dense model.
        mtp_modules: multi-token-prediction modules to draft with; a drafted token passes through one of them, in turn.
        tensors, caches: the inventory.
        quantization: where its formats were read.
        findings: what a reader should know: contradictions, choices, parts left out.
    """

    name: str
    source: str
    model_type: str
    hidden: int
    layers: int
    vocab: int
    heads: int
    kv_heads: int
    moe: Moe | None
    tied: bool
    mtp_modules: int = 0
    tensors: tuple[Tensor, ...]
    caches: tuple[Cache, ...]
    quantization: Quantization
    findings: tuple[Finding, ...]

    def parameters(self, stage: Stage | None = "main") -> int:
        """Elements of the checkpoint; `stage` None counts the MTP layers as well."""
        return sum(t.parameters for t in self.tensors if stage in (None, t.stage))

    def checkpoint_bytes(self, stage: Stage | None = "main") -> float:
        """Bytes of the checkpoint's tensors, scales included."""
        return sum(t.storage.total_bytes for t in self.tensors if stage in (None, t.stage))

    def active_parameters(self) -> int:
        """Elements that one token's step multiplies with: top-k of the experts and lm_head, no embedding."""
        return round(
            sum(
                self.active_copies(t) * t.values * max(1, len(t.layers))
                for t in self.main
                if t.read != "one row a token"
            )
        )

    def active_bytes(self) -> float:
        """Bytes of weights and scales that one token's step needs, each once, however many GPUs hold a copy."""
        total = 0.0
        for tensor in self.main:
            if tensor.read == "one row a token":
                total += tensor.format.storage(tensor.shape[1:]).total_bytes
            else:
                one = tensor.format.storage(tensor.shape).total_bytes
                total += one * self.active_copies(tensor) * max(1, len(tensor.layers))
        return total

    def active_copies(self, tensor: Tensor) -> float:
        """How many of a tensor's copies one token reads, on average where an entry holds only some of the experts."""
        if tensor.read == "never":
            return 0
        if tensor.read == "routed experts" and self.moe is not None:
            return tensor.copies * self.moe.top_k / self.moe.experts
        return tensor.copies

    @property
    def main(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.stage == "main")

    @property
    def has_mtp(self) -> bool:
        return any(t.stage == "mtp" for t in self.tensors)


def read_model(source: str | Path) -> Model:
    """A model from a checkpoint folder, a config.json, or the catalogue.

    Args:
        source: a folder with a config.json (safetensors headers in it are read and win over what is inferred), the
            path of a config.json (an hf_quant_config.json beside it is used), or a name of the catalogue.

    Raises:
        InputFileError: a path that cannot be read, or holds no JSON object.
        ConfigError: a configuration that lacks, contradicts, or garbles a field.
        UnknownNameError: an unknown catalogue name or model_type.
    """
    path = Path(source)
    if os.path.isdir(path):  # noqa: PTH112 - of a name too long for any file it says no, where pathlib raises
        return _read_folder(path)
    if is_present(path):
        return _read_file(path)
    if isinstance(source, Path) or "/" in source or source.endswith(".json"):
        raise InputFileError(
            f"reading {source}", "there is no such file or folder", "the path of a model's config.json"
        )
    from sublight.facts.catalogue.models import catalogue_model

    entry = catalogue_model(source)
    return build_model(entry.config, entry.hf_quant, name=entry.name, source=entry.source)


def _read_folder(path: Path) -> Model:
    config = path / "config.json"
    if not is_present(config):
        try:
            present = sorted(p.name for p in path.iterdir())[:5]
        except OSError as error:
            found = error.strerror or str(error)
            raise InputFileError(f"reading {path}", found, "a folder that can be read") from None
        raise InputFileError(
            f"reading {path} as a model",
            f"the folder has no config.json ({', '.join(present) if present else 'it is empty'})",
            "the folder that holds the checkpoint's config.json",
        )
    side = path / "hf_quant_config.json"
    beside = side if is_present(side) else None
    return _built(config, beside, name=_title(path.resolve()), source=str(config), folder=path)


def _read_file(path: Path) -> Model:
    # A whole checkpoint keeps the quantisation file under its own name; a collection of configurations puts the
    # model's name before it.
    beside = [path.with_name(f"{path.stem}.hf_quant_config.json"), path.with_name("hf_quant_config.json")]
    if path.name != "config.json":
        beside = beside[:1]
    side = next((p for p in beside if is_present(p)), None)
    # The file of a download cache is a link to a blob; its folder is the one that it was found in.
    folder = path.parent.resolve()
    name = _title(folder) if path.name == "config.json" or folder.name == "blobs" else path.stem
    return _built(path, side, name=name, source=str(path))


def _built(config: Path, side: Path | None, *, name: str, source: str, folder: Path | None = None) -> Model:
    """The model of a configuration, and of the quantisation file beside it."""
    value, twice = read_object(config)
    hf_quant, twice_beside = read_object(side) if side is not None else (None, ())
    noted = tuple(
        Finding("warn", "configuration", f"{path.name} gives {key} twice in one object: the last one is used")
        for path, keys in ((config, twice), (side or config, twice_beside))
        for key in keys
    )
    return build_model(value, hf_quant, name=name, source=source, folder=folder, noted=noted)


def _title(folder: Path) -> str:
    """The folder's name; of a download cache (models--ORG--NAME/snapshots/HASH) the model's own."""
    holder = folder.parent.parent if folder.parent.name == "snapshots" else folder.parent
    if folder.name == "blobs" or folder.parent.name == "snapshots":
        kind, *names = holder.name.split("--")
        if kind == "models" and names:
            return "/".join(names)
    return folder.name


def build_model(
    config: Mapping[str, Any],
    hf_quant: Mapping[str, Any] | None,
    *,
    name: str,
    source: str,
    folder: Path | None = None,
    noted: tuple[Finding, ...] = (),
) -> Model:
    """A model from decoded configuration.

    Args:
        folder: where given, searched for safetensors headers.
        noted: what reading the files found, told with the rest.
    """
    from sublight.facts.quantization.read import read_quantization

    top = Fields(config, source)
    text = top.object("text_config") or top
    model_type, root, head_root, left_out = _language_model(top, text)
    side = Fields(hf_quant, "hf_quant_config.json") if hf_quant is not None else None
    quantization = read_quantization(top, text, side)
    checkpoint = None
    if folder is not None and _has_tensors(folder):
        from sublight.facts.checkpoint import from_headers, read_checkpoint

        checkpoint = read_checkpoint(folder)
        quantization = from_headers(checkpoint, quantization)
    if "tie_word_embeddings" in top and "tie_word_embeddings" not in text:
        text = Fields({**text.data, "tie_word_embeddings": top.data["tie_word_embeddings"]}, text.name)
    _check_extent(text, getattr(quantization.scheme, "names_experts", False))
    inventory = Inventory(quantization, root, head_root)
    FAMILIES.load(model_type)(text, inventory)
    scanned = _scanned(checkpoint, inventory) if checkpoint is not None else ()
    return Model(
        name=name,
        source=source,
        model_type=model_type,
        hidden=inventory.hidden,
        layers=inventory.layers,
        vocab=inventory.vocab,
        heads=inventory.heads,
        kv_heads=inventory.kv_heads,
        moe=_checked(inventory.moe, text),
        tied=inventory.tied,
        mtp_modules=inventory.mtp_modules,
        tensors=tuple(inventory.tensors),
        caches=tuple(inventory.caches),
        quantization=quantization,
        # Headers are held against what was inferred while modules are asked for, so only now are all findings there.
        findings=(
            *noted,
            *left_out,
            *quantization.all_findings(),
            *scanned,
            *inventory.findings,
            *_unmatched(quantization),
        ),
    )


def _language_model(top: Fields, text: Fields) -> tuple[str, str, str, tuple[Finding, ...]]:
    """Which family to read by, how its tensors are prefixed, and what is left out of a multimodal model."""
    model_type = text.text("model_type")
    if not model_type:
        raise top.error("it has no model_type", "the whole config.json of a language model")
    if model_type not in FAMILIES:
        names = FAMILIES.names()
        near = near_misses(model_type, names)
        raise UnknownNameError("model_type", model_type, near or names, FAMILIES.hint)
    if text is top:
        return model_type, _ROOTS.get(model_type, "model"), "", ()
    wrapper = top.text("model_type")
    if wrapper not in _WRAPPERS:
        raise UnknownNameError("multimodal model_type", wrapper, _WRAPPERS, FAMILIES.hint)
    root, head_root = _WRAPPERS[wrapper]
    others = [key for key in ("vision_config", "audio_config") if key in top]
    parts = " and ".join(key.removesuffix("_config") for key in others) or "everything but text"
    note = Finding("info", "multimodal", f"read through text_config: the {parts} part is left out of every number")
    return model_type, root, head_root, (note,)


def _check_extent(text: Fields, by_expert: bool) -> None:
    """Raises ConfigError for more experts in all layers than any model has: published ones have up to 50,000.

    Rules that name single experts make each of them be asked about.
    """
    layers = text.size("num_hidden_layers", default=1)
    experts = text.size("n_routed_experts", "num_experts", "num_local_experts", default=0, least=0)
    if layers * experts > (_MOST_EXPERTS_ASKED if by_expert else _MOST_EXPERTS_IN_ALL):
        raise text.error(f"it has {layers:,} layers of {experts:,} experts, beyond any model", "the file as released")


def _checked(moe: Moe | None, fields: Fields) -> Moe | None:
    if moe is None:
        return None
    if moe.top_k > moe.experts:
        raise fields.error(f"each token goes to {moe.top_k} of {moe.experts} experts", "a top-k within the experts")
    if moe.experts % moe.groups or not 1 <= moe.top_groups <= moe.groups:
        raise fields.error(
            f"{moe.experts} experts in {moe.groups} groups of which {moe.top_groups} are used",
            "groups that divide the experts",
        )
    return moe


def _has_tensors(folder: Path) -> bool:
    return is_present(folder / "model.safetensors.index.json") or any(folder.glob("*.safetensors"))


def _scanned(checkpoint: "Checkpoint", inventory: Inventory) -> Iterable[Finding]:
    """What the stored tensors themselves show: unsound scales, and bytes that the inventory does not account for."""
    from sublight.facts.scales import scan_scales

    yield from scan_scales(checkpoint)
    counted = sum(t.storage.total_bytes for t in inventory.tensors)
    stored = checkpoint.total_bytes
    if not checkpoint.missing and abs(stored - counted) > 0.001 * counted:
        yield Finding(
            "warn" if stored < counted else "info",
            "checkpoint",
            f"the shards hold {show_bytes(stored, 4)} in {len(checkpoint.tensors):,} tensors, the inventory counts "
            f"{show_bytes(counted, 4)}: the rest is no part of the language model, or the configuration is not theirs",
        )


def _unmatched(quantization: Quantization) -> Iterable[Finding]:
    names = quantization.scheme.unmatched()
    # Vision towers are excluded by name and are not part of the inventory; that is no contradiction.
    rules = [n for n in names if not any(word in n for word in ("vision", "visual", "audio", "mm_projector"))]
    if rules:
        shown = ", ".join(_cut(rule) for rule in rules[:4]) + (f" and {len(rules) - 4} more" if len(rules) > 4 else "")
        yield Finding("info", "quantisation", f"{len(rules)} rules name no module of this model: {shown}")


def _cut(rule: str) -> str:
    return rule if len(rule) <= 80 else f"{rule[:77]}..."


__all__ = ["ConfigError", "Model", "build_model", "read_model"]
