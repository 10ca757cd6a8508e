"""The page: one file, nothing from elsewhere, and what users have named is text in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from onward.pipeline.report import Page, render
from onward.pipeline.report._render import _plotly
from tests.support.report_pages import DAY, busy_day, empty_day

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&<b>\u2028"

SECTIONS = (
    *("traffic", "latency", "slo", "unroutable", "shards", "churn", "paths", "relays", "replay"),
    *("audit", "logs"),
)


class Reader(HTMLParser):
    """Notes elements, their attributes, and the visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._hidden = tag in {"script", "style"}

    def handle_endtag(self, tag: str) -> None:
        self._hidden = self._hidden and tag not in {"script", "style"}

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text.append(data)


def read(page: Page) -> Reader:
    # Plotly is most of the page, and not ours to look at.
    reader = Reader()
    reader.feed(render(page).replace(_plotly(), ""))
    return reader


def figures(page: Page) -> dict[str, object]:
    found = re.search(r"id=figures>(.*?)</script>", render(page), re.DOTALL)
    assert found is not None
    loaded: dict[str, object] = json.loads(found[1])
    return loaded


def test_it_has_all_sections_with_their_plots_and_a_link_to_each() -> None:
    reader = read(busy_day())
    ids = [of.get("id") for tag, of in reader.elements if tag == "section"]
    links = [of.get("href") for tag, of in reader.elements if tag == "a"]
    assert tuple(ids) == SECTIONS
    assert links == [f"#{name}" for name in SECTIONS]
    places = {of["id"] for tag, of in reader.elements if tag == "div" and "id" in of}
    assert places == {f"plot-{name}" for name in figures(busy_day())}
    assert len(places) == 8


def test_no_two_elements_have_one_id() -> None:
    ids = [of["id"] for _, of in read(busy_day()).elements if "id" in of]
    assert len(ids) == len(set(ids))


def test_what_was_not_asked_for_is_left_out() -> None:
    reader = read(Page(DAY))
    assert [of.get("id") for tag, of in reader.elements if tag == "section"] == ["logs"]
    assert figures(Page(DAY)) == {}


def test_an_empty_day_says_so_in_each_section() -> None:
    text = "".join(read(empty_day()).text)
    for said in (
        "There were no requests on this day.",
        "No requests of this day were sampled.",
        "No objectives are set",
        "All requests had a route.",
        "There were no shard requests.",
        "No destination registered or left.",
        "No messages of this day were sampled.",
        "No relay passed anything on, or refused it, on this day.",
        "There was no sampled traffic to resolve.",
        "No requests were recorded on this day.",
        "The lake has no log of this day.",
        "Audit: nothing was recorded",
        "no log of this day",
    ):
        assert said in text
    assert figures(empty_day()) == {}


def test_relays_have_their_load_and_refusals_and_no_sender_that_is_not_known() -> None:
    text = "|".join(read(busy_day()).text)
    assert "refused: permission denied" in text
    assert "Between which nodes" in text
    # The anonymous profile: a dash in place of the node before.
    assert re.search(r"quiet\|\u2013\|ccc", text)


def test_what_users_have_named_is_text_wherever_it_stands() -> None:
    page = busy_day(named=EVIL)
    plain, evil = read(busy_day()), read(page)
    # The same elements, and none of theirs.
    assert [tag for tag, _ in evil.elements] == [tag for tag, _ in plain.elements]
    assert not any(name.startswith("on") for _, of in evil.elements for name in of)
    assert "alert(1)" in "".join(evil.text)
    written = render(page).replace(_plotly(), "")
    assert written.count("<script") == render(busy_day()).replace(_plotly(), "").count("<script")
    assert "<img" not in written
    # Plotly shows some tags as formatting: in plots they are text as well.
    assert "<script>" not in json.dumps(figures(page))


def test_it_asks_for_nothing_from_elsewhere() -> None:
    reader = read(busy_day())
    policy = next(of for _, of in reader.elements if of.get("http-equiv"))
    assert "default-src 'none'" in str(policy["content"])
    for tag, of in reader.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed"}
        assert "src" not in of
        assert not str(of.get("href") or "#").startswith("http")
    assert "cdn." not in render(busy_day()).replace(_plotly(), "")


def test_the_same_page_is_written_the_same() -> None:
    assert render(busy_day()) == render(busy_day())


def test_the_head_says_the_day_the_verdict_and_the_figures() -> None:
    text = "".join(read(busy_day()).text)
    assert "Friday, 20 November 2026" in text
    assert "Audit: balanced" in text
    assert "4.81 M" in text
    assert "eu-1, eu-2, us-1: complete" in text


@pytest.mark.parametrize(
    ("missing", "duplicated", "said"),
    [
        (3, 0, "Audit: 3 missing"),
        (0, 1200, "Audit: 1\u202f200 duplicated"),
        (3, 1, "Audit: 3 missing and 1 duplicated"),
    ],
)
def test_an_audit_out_of_balance_is_said_first(missing: int, duplicated: int, said: str) -> None:

    page = busy_day()
    assert page.audit is not None
    audit = replace(page.audit, missing=missing, duplicated=duplicated)
    assert said in "".join(read(replace(page, audit=audit)).text)


def test_what_is_not_shown_is_counted() -> None:
    text = "".join(read(busy_day()).text)
    for said in ("and 7 more pairs, with 1\u202f234 frames", "and 3 more destinations"):
        assert said in text


def test_late_events_are_told() -> None:

    text = "".join(read(replace(busy_day(), late=12)).text)
    assert "Events that came after the day was closed: 12. This page includes them" in text


def test_what_may_be_in_hand_is_amber_and_what_is_lost_is_not() -> None:
    page = busy_day()
    assert page.audit is not None
    first, *others = page.audit.rows
    rows = (replace(first, missing=4, going=True), *others)
    going = replace(page, audit=replace(page.audit, rows=rows, missing=4, open=4))
    written = render(going)
    assert '<span class="verdict note">Audit: 4 in progress or lost' in written
    assert "<span class=isopen>4</span>" in written
    assert "their broker still runs, so they may be in progress" in "".join(read(going).text)
    rows = (replace(first, missing=4), *others)
    lost = render(replace(page, audit=replace(page.audit, rows=rows, missing=4)))
    assert '<span class="verdict bad">Audit: 4 missing</span>' in lost
    assert "<span class=isbad>4</span>" in lost


def test_one_more_is_not_told_as_many() -> None:
    page = busy_day()
    assert page.churn is not None
    text = "".join(read(replace(page, churn=replace(page.churn, more=1))).text)
    assert "and 1 more destination" in text
    assert "and 1 more destinations" not in text


def test_all_that_is_wrong_is_said_one_after_the_other() -> None:
    page = busy_day()
    assert page.audit is not None
    audit = replace(page.audit, missing=5, open=3, duplicated=1, absent=2)
    text = "".join(read(replace(page, audit=audit)).text)
    said = "2 missing from the lake; 2 missing; 1 duplicated; 3 in progress or lost"
    assert f"Audit: {said}" in text


def test_requests_without_tags_in_the_log_are_told_where_they_are_left_out() -> None:
    page = busy_day()
    said = "Requests without tags in the log: 17"
    assert said not in render(page)
    totals = replace(page.totals, untagged=17)
    assert render(replace(page, totals=totals)).count(said) == 2
