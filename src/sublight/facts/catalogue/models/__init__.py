"""The models that Sublight knows by name.

One TOML file a model. `config` holds the fields of the release's config.json that sizes follow from; `extends` takes
those of another entry first, so that a quantised release says only what differs. `quantization` is written in the form
of ModelOpt's hf_quant_config.json when `form` is "hf_quant_config", else in that of config.json's quantization_config;
it is never taken over from another entry, and long lists of exact names are written as the globs they spell out.

A list with one item a layer may be written as `{ start = [...], repeat = [...] }`: the items of `start`, then those of
`repeat` over and over, for as many layers as `num_hidden_layers` of the same table says.
"""

from collections.abc import Mapping
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from sublight.errors import UnknownNameError

_FOLDER = Path(__file__).parent


class _Quantization(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    form: Literal["hf_quant_config", "quantization_config"]
    values: dict[str, Any]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    source: str
    config: dict[str, Any] = {}
    extends: str = ""
    note: str = ""
    quantization: _Quantization | None = None


class CatalogueModel(msgspec.Struct, frozen=True):
    """One entry, in the form of the files a checkpoint ships.

    Attributes:
        name: as the command line takes it.
        title: as a reader knows the model.
        source: the public files that the entry was written from.
        note: what the entry leaves out or decides.
        config: the fields of config.json.
        hf_quant: hf_quant_config.json, or None.
    """

    name: str
    title: str
    source: str
    note: str
    config: Mapping[str, Any]
    hf_quant: Mapping[str, Any] | None


def model_names() -> list[str]:
    """Every name of the catalogue, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def catalogue_model(name: str) -> CatalogueModel:
    """An entry by its name, in upper or lower case. Raises UnknownNameError with the near misses."""
    asked, name = name, name.strip().lower()
    names = model_names()
    if name not in names:
        raise UnknownNameError(
            "model", asked, names, "the path of the model's config.json; `sublight limit --list` names those built in"
        )
    file = _read(name)
    config = _written_out(_inherited(file))
    hf_quant = None
    if file.quantization is not None:
        if file.quantization.form == "hf_quant_config":
            hf_quant = {"quantization": file.quantization.values}
        else:
            config["quantization_config"] = file.quantization.values
    return CatalogueModel(name, file.title, file.source, file.note, config, hf_quant)


def _inherited(file: _File) -> Mapping[str, Any]:
    if not file.extends:
        return file.config
    base = dict(_inherited(_read(file.extends)))
    for key, value in file.config.items():
        # A nested text_config is filled in, not replaced; a list written as a pattern is one value.
        both = isinstance(value, dict) and isinstance(base.get(key), dict) and "repeat" not in value
        base[key] = {**base[key], **value} if both else value
    return base


def _written_out(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same with every list that is written as a pattern in full, here and one level down."""
    full: dict[str, Any] = {}
    for key, value in config.items():
        if not isinstance(value, dict):
            full[key] = value
        elif "repeat" in value:
            items = chain(value.get("start", ()), cycle(value["repeat"]))
            full[key] = list(islice(items, config["num_hidden_layers"]))
        else:
            full[key] = _written_out(value)
    return full


def _read(name: str) -> _File:
    return msgspec.toml.decode((_FOLDER / f"{name}.toml").read_bytes(), type=_File)
