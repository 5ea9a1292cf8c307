"""What a card and its driver are asked, and what is made of the answers."""

from sublight.bench.environment import _notes, card_of, parse_query, seen


def test_a_line_of_nvidia_smi() -> None:
    told = parse_query("580.159.04, 1980, 3201, 700.00, 700.00, 0x0000000000000000\n")
    assert told["driver_version"] == "580.159.04"
    assert (told["clocks.sm"], told["clocks.mem"]) == ("1980", "3201")
    assert _notes(told) == ()


def test_clocks_held_back_and_power_limited() -> None:
    told = parse_query("580.1, 1200, 3201, 450.00, 700.00, 0x0000000000000004")
    assert _notes(told) == (
        "the driver holds the clocks back (reasons 0x0000000000000004)",
        "power is limited to 450 W of 700 W",
    )
    assert _notes(parse_query("580.1, 300, 3201, 700.00, 700.00, 0x0000000000000001")) == ()


def test_answers_that_are_none() -> None:
    assert parse_query("") == {}
    assert parse_query('Field "clocks_event_reasons.active" is not a valid field to query.') == {}
    told = parse_query("580.1, [N/A], 3201, [Not Supported], 700.00, 0x0")
    assert set(told) == {"driver_version", "clocks.mem", "power.default_limit", "reasons"}


def test_cards_by_what_their_driver_calls_them() -> None:
    assert card_of("NVIDIA H200") == "h200"
    assert card_of("NVIDIA GeForce FX 5200") == ""


def test_a_rehearsal_knows_where_it_is() -> None:
    environment = seen("cpu")
    assert environment.is_rehearsal
    assert environment.l2_bytes is None
    assert environment.torch
