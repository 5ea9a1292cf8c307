"""A figure is called a data sheet's only where its source is one."""

import pytest

from sublight.facts.catalogue.gpus import card_names, catalogue_card
from sublight.facts.gpu import get_gpu
from sublight.records import Evidence


@pytest.mark.parametrize("name", card_names())
def test_a_table_in_a_repository_is_no_data_sheet(name: str) -> None:
    figures = catalogue_card(name).figures
    assert figures
    for what, figure in figures.items():
        if "aiconfigurator" in figure.source:
            assert figure.evidence is not Evidence.DATA_SHEET, what


def test_what_a_data_sheet_says_is_still_called_so() -> None:
    assert get_gpu("rtx-pro-6000-server").memory_bandwidth_bytes_per_s.evidence is Evidence.DATA_SHEET
    assert get_gpu("b200").memory_bandwidth_bytes_per_s.evidence is Evidence.PUBLISHED
