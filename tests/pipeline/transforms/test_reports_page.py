"""The page of the reports against what is declared."""

from __future__ import annotations

import re

import pytest

from onward.pipeline import REPORT_TABLES
from tests.support.pages import ROOT, cells, section

PAGE = (ROOT / "docs" / "reference" / "pipeline-reports.md").read_text()


@pytest.mark.parametrize("report", REPORT_TABLES)
def test_the_page_has_each_column_of_a_report_in_order(report: str) -> None:
    declared = [column.split(" ", 1)[0] for column in REPORT_TABLES[report].split(", ")]
    assert [row[0].strip("`") for row in cells(section(PAGE, report))] == declared


def test_the_page_has_no_report_that_there_is_not() -> None:
    titles = re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)
    assert sorted(titles) == sorted(REPORT_TABLES)
