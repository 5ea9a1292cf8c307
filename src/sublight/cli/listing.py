"""What is built in: the names of models, cards and links, and everything stated of one of them."""

from typing import Any

import click

from sublight.errors import UnknownNameError
from sublight.facts.catalogue.gpus import CatalogueCard, card_names, catalogue_card
from sublight.facts.catalogue.models import CatalogueModel, catalogue_model, model_names
from sublight.facts.gpu import get_gpu, gpu_names
from sublight.facts.interconnect import interconnect_names
from sublight.records import Figure
from sublight.units import show_bytes, show_flops, show_rate, significant


def list_names(as_json: bool = False) -> None:
    lists = {"models": model_names(), "GPUs": gpu_names(), "links": interconnect_names()}
    if as_json:
        _print_json(lists)
        return
    for title, names in lists.items():
        click.echo(f"{title}:")
        for name in names:
            click.echo(f"  {name}")


def list_one(name: str, as_json: bool = False) -> None:
    """The figures of a card with their sources, or where a model's facts were read. Raises UnknownNameError."""
    if name.lower() in model_names():
        model = catalogue_model(name)
        if as_json:
            _print_json({"name": model.name, "title": model.title, "source": model.source, "note": model.note})
        else:
            _model(model)
        return
    try:
        card = get_gpu(name).name
    except UnknownNameError:
        raise UnknownNameError("model or GPU", name, [*model_names(), *gpu_names()]) from None
    if card not in card_names():
        raise UnknownNameError("card built in", name, card_names())
    known = catalogue_card(card)
    if as_json:
        _print_json({"name": known.name, "title": known.title, "target": known.target, "figures": known.figures})
    else:
        _card(known)


def _print_json(value: Any) -> None:
    """Plain JSON: what is built in is looked up, not found out, and is no record."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=1))


def _model(model: CatalogueModel) -> None:
    click.echo(f"{model.name}: {model.title}")
    for title, text in (("source", model.source), ("note", model.note)):
        if text:
            click.echo(f"  {title}: {text}")


def _card(card: CatalogueCard) -> None:
    click.echo(f"{card.name}: {card.title} ({card.target})")
    for field, figure in card.figures.items():
        click.echo(f"  {_label(field)}: {_value(field, figure)}")
        for title, text in (("known as", figure.evidence.value), ("source", figure.source), ("note", figure.note)):
            if text:
                click.echo(f"      {title}: {text}")


def _label(field: str) -> str:
    """The field's words without its unit, which the value has."""
    for unit in ("_bytes_per_s", "_flops_per_s", "_bytes"):
        field = field.removesuffix(unit)
    return field.replace("_", " ")


def _value(field: str, figure: Figure) -> str:
    if figure.value is None:
        return "not known"
    if "bytes_per_s" in field:
        return show_rate(figure.value)
    if field.endswith("flops_per_s"):
        return f"{show_flops(figure.value)}/s" if figure.value else "none"
    if field.endswith("_bytes"):
        return show_bytes(figure.value)
    # Counts, generations and watts are whole numbers, and no digits of theirs are measured.
    return f"{figure.value:,.0f}" if float(figure.value).is_integer() else significant(figure.value, 6)
