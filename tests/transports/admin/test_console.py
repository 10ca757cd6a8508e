"""The console in a browser, against a broker under load."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from onward.protocol.broker import SnapshotRoute, format_route
from onward.transports.client import connect
from tests.support.browser import NEEDS_CHROMIUM, Browser, Page, chromium
from tests.support.busy_broker import HOSTILE, BusyBroker, busy_broker, listening
from tests.support.commands import TIMEOUT, onward
from tests.support.counts import exhaustive
from tests.support.process_brokers import brokers

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM]

WRITTEN = HOSTILE.replace("\x1b", "\\x1b").replace("\x07", "\\x07").replace("\u202e", "\\u202e")
"""The name of the enemy as the console writes it out."""

PAGES = (
    *("overview", "services", "connections", "routes", "waiting", "peers"),
    *("workers", "topology", "events", "limits", "trace"),
)
READY = "document.querySelector('main h1') && !document.querySelector('.loading')"


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def busy() -> Generator[BusyBroker]:
    with busy_broker() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Generator[Page]:
    """A page, which has written no error and broken no policy in the end."""
    made = browser.page()
    yield made
    made.run("1")  # what has happened so far comes before the answer
    faults = list(made.faults)
    made.close()
    assert faults == []


def show(page: Page, broker: BusyBroker, name: str) -> None:
    page.open(f"{broker.admin}/#/{name}")
    page.until(f"location.hash == '#/{name}' && {READY}")


def cells(page: Page) -> list[list[str]]:
    """Return the texts of the rows of the first table."""
    script = (
        "[...document.querySelectorAll('main table tbody tr')]"
        ".map(row => [...row.children].map(cell => cell.innerText.trim()))"
    )
    found: list[list[str]] = page.run(script)
    return found


# --- each page shows what the API says ------------------------------------------------------


def see_overview(page: Page, broker: BusyBroker) -> None:
    said = broker.get("/api/v1/overview")
    page.see(said["broker"]["listeners"][0]["uri"])
    page.until("document.querySelectorAll('.spark .line').length == 7")
    page.see("What is wrong")
    # Whatever is said to be wrong when the page asks: requests to `mail` fail.
    page.see("of the requests ended with an error of their destination")
    page.see("See which service has the low share of success")


def see_services(page: Page, broker: BusyBroker) -> None:
    page.until("document.body.innerText.includes('Rate, success and latency of the last')")
    rows = {row[0]: row for row in cells(page)}
    said = {row["service"]: row for row in broker.get("/api/v1/services")["rows"]}
    assert set(rows) - {max(rows, key=len)} == set(said) - {HOSTILE}
    assert rows["mail"][2] == "0 %"
    assert rows["orders"][2] == "100 %"
    assert rows["orders"][6] == "3"
    assert re.fullmatch(r"[\d.]+/s", rows["orders"][1])
    assert re.fullmatch(r"[\d.]+ (ms|s)", rows["orders"][4])


def see_connections(page: Page, broker: BusyBroker) -> None:
    rows = {row[1]: row for row in cells(page)}
    said = {row["peer"]: row for row in broker.get("/api/v1/connections")["rows"]}
    assert set(rows) == set(said)
    for peer, row in rows.items():
        assert row[0] == str(said[peer]["id"])
    page.run("document.querySelector('.tabs a:last-child').click()")
    page.until("document.querySelector('main table')?.innerText.includes('by the peer')")
    assert [row[2] for row in cells(page)] == ["billing"]


def see_routes(page: Page, broker: BusyBroker) -> None:
    said = broker.get("/api/v1/routes")["rows"]
    assert sorted(row[2] for row in cells(page)) == sorted(row["peer"] for row in said)
    page.run("document.querySelector('main input[type=text]').focus()")
    page.write("service=orders region=mars")
    page.press("Enter")
    page.see("No destination matches")
    page.see("Why not the others?")
    page.until("document.querySelector('.reasons li').innerText.includes('has region=')")
    page.run("document.querySelector('main input[type=text]').select()")
    page.write("service=orders region=us")
    page.press("Enter")
    page.see("1 destination matches")
    page.run("document.querySelector('main input[type=text]').select()")
    page.write("=broken")
    page.press("Enter")
    page.until("document.querySelector('.error')?.innerText.length > 3")
    page.faults.clear()  # the browser tells of each answer above 399


def see_waiting(page: Page, broker: BusyBroker) -> None:
    page.until("document.querySelectorAll('main tbody tr').length == 2")
    assert {(row[0], row[1]) for row in cells(page)} == {
        (row["query"], str(row["requests"])) for row in broker.get("/api/v1/waiting")["rows"]
    }
    page.run("document.querySelector('main tbody a').click()")
    page.see("No destination matches")


def see_peers(page: Page, broker: BusyBroker) -> None:
    assert broker.get("/api/v1/peers?kind=broker")["rows"] == []
    page.see("There is no peer broker")


def see_workers(page: Page, broker: BusyBroker) -> None:
    page.see("Rates of the last")
    rows = {row[0].replace("└", "").strip(): row for row in cells(page)}
    for said in broker.get("/api/v1/workers")["rows"]:
        name = said["address"].removeprefix("0#")
        shown = name if len(name) <= 24 else f"{name[:23]}…"
        assert rows[shown][1] == said["kind"]
    script = "[...document.querySelectorAll('.branch')].map(each => each.style.paddingLeft)"
    depths: list[str] = page.run(script)
    assert {"0px", "18px", "36px"} <= set(depths)


def see_topology(page: Page, broker: BusyBroker) -> None:
    page.until("document.querySelectorAll('.picture svg text').length > 10")
    texts: list[str] = page.run(
        "[...document.querySelectorAll('.picture text')].map(each => each.textContent)"
    )
    assert {"service=orders", "3 destinations", "service=web", "no service"} <= set(texts)
    assert page.run("document.querySelectorAll('.picture style, .picture script').length") == 0


def see_events(page: Page, broker: BusyBroker) -> None:
    page.until("document.querySelectorAll('.event').length >= 9")
    page.until("document.querySelector('.events').innerText.includes('left')")
    page.see("billing")
    page.run("document.querySelector('.tools button').click()")
    page.see("Go on")


def see_limits(page: Page, broker: BusyBroker) -> None:
    rows = {(row[0], row[1]): row for row in cells(page)}
    for said in broker.get("/api/v1/limits")["rows"]:
        row = rows[said["name"], said["listener"] or "the broker"]
        if said["name"] == "max_routes":
            assert row[3:5] == ["8", "1\u202f000\u202f000"]
        if said["name"] == "waiting.max_bytes":
            assert row[4] == "64 MiB"


def see_trace(page: Page, broker: BusyBroker) -> None:
    fields = "document.querySelectorAll('main input')"
    page.run(f"{fields}[0].focus()")
    page.write("service=search")
    page.press("Tab")
    page.write("xx")
    page.press("Enter")
    page.see("answered")
    page.until("document.querySelectorAll('.hops li').length > 0")
    page.see("RouteWorker")
    page.run(f"{fields}[0].focus(); {fields}[0].select()")
    page.write("=broken")
    page.press("Enter")
    page.until("document.querySelector('.error')?.innerText.length > 3")
    page.faults.clear()  # the browser tells of each answer above 399


SEEN: dict[str, Callable[[Page, BusyBroker], None]] = {
    "overview": see_overview,
    "services": see_services,
    "connections": see_connections,
    "routes": see_routes,
    "waiting": see_waiting,
    "peers": see_peers,
    "workers": see_workers,
    "topology": see_topology,
    "events": see_events,
    "limits": see_limits,
    "trace": see_trace,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_the_api_says(page: Page, busy: BusyBroker, name: str) -> None:
    show(page, busy, name)
    SEEN[name](page, busy)
    hosts = {url.split("/")[2] for url in page.requests if not url.startswith("about:")}
    assert hosts == {busy.admin.removeprefix("http://")}


@pytest.mark.parametrize(
    "name", ["routes", "topology", *exhaustive("services", "connections", "events")]
)
def test_what_peers_have_named_stays_text(page: Page, busy: BusyBroker, name: str) -> None:
    show(page, busy, name)
    page.until("document.querySelector('main').textContent.includes('<script>')")
    assert page.run("document.title").endswith("· broker · Onward")
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    whole = page.run(
        "document.querySelector('main').textContent + [...document.querySelectorAll('[title]')]"
        ".map(each => each.title).join()"
    )
    assert not set(HOSTILE) & set("\x1b\x07\u202e") & set(whole)
    if name != "topology":
        assert WRITTEN in whole


# --- a cluster ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clustered() -> Generator[tuple[BusyBroker, BusyBroker]]:
    """A broker with two peer brokers, and that with a seed that nobody answers at, first."""
    uri = "rsocket+tcp://127.0.0.1:0"
    allow = ("--cluster-allow", "rsocket+tcp://127.0.0.1:*")
    with (
        listening("--cluster-name", "north", "--cluster-advertise", uri, *allow) as north,
        listening("--cluster-name", "south", "--cluster-seed", north.uri, *allow),
    ):
        nothing = "rsocket+tcp://127.0.0.1:1"
        seeds = ("--cluster-seed", north.uri, "--cluster-seed", nothing)
        with listening("--cluster-name", "west", *seeds, *allow) as west:
            deadline = time.monotonic() + TIMEOUT
            while [row["state"] for row in peers_of(west)].count("up") < 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield west, north


def peers_of(broker: BusyBroker) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = broker.get("/api/v1/peers?kind=broker")["rows"]
    return rows


def test_the_peer_brokers_of_a_cluster(
    page: Page, clustered: tuple[BusyBroker, BusyBroker]
) -> None:
    west, _ = clustered
    show(page, west, "peers")
    page.until("document.querySelectorAll('main tbody tr').length == 3")
    rows = {row[0]: row for row in cells(page)}
    said = {row["peer"]: row for row in peers_of(west)}
    assert set(rows) == set(said) == {"north", "south", "rsocket+tcp://127.0.0.1:1"}
    for name in ("north", "south"):
        assert rows[name][1] == "up"
        assert rows[name][2].endswith("s ago")
        assert rows[name][4] == str(said[name]["routes"])
        assert rows[name][6] == "0"
    unreached = rows["rsocket+tcp://127.0.0.1:1"]
    assert unreached[1] == "connecting"
    assert "Connect call failed" in unreached[-1] or "refused" in unreached[-1].lower()
    page.see("2 of 3 peer brokers up")
    marks: list[str] = page.run(
        "[...document.querySelectorAll('td .mark')].map(it => it.className)"
    )
    assert sorted(marks) == ["mark bad", "mark good", "mark good"]
    page.run("document.querySelector('main input').focus()")
    page.write("sou")
    page.until("document.querySelectorAll('main tbody tr').length == 1")
    show(page, west, "topology")
    page.until("document.querySelectorAll('.picture svg text').length > 3")
    texts: list[str] = page.run(
        "[...document.querySelectorAll('.picture text')].map(each => each.textContent)"
    )
    assert {"peer north", "peer south"} <= set(texts)
    assert any(each.startswith("up, ") for each in texts)
    page.faults.clear()


def test_peer_brokers_are_sorted_by_keyboard(
    page: Page, clustered: tuple[BusyBroker, BusyBroker]
) -> None:
    west, _ = clustered
    show(page, west, "peers")
    page.until("document.querySelectorAll('main tbody tr').length == 3")
    page.tab_to("it.textContent == 'State'")
    page.press("Enter")
    sort = "document.activeElement.closest('th').getAttribute('aria-sort')"
    page.until(f"{sort} == 'ascending'")
    assert [row[1] for row in cells(page)] == ["connecting", "up", "up"]


@pytest.mark.parametrize(
    ("scheme", "width"), [("dark", 360), *exhaustive(("light", 360), ("dark", 1280))]
)
def test_peer_brokers_can_be_read(
    page: Page, clustered: tuple[BusyBroker, BusyBroker], scheme: str, width: int
) -> None:
    west, _ = clustered
    page.size(width, 740, phone=width < 500)
    page.media(prefers_color_scheme=scheme)
    show(page, west, "peers")
    page.until("document.querySelectorAll('main tbody tr').length == 3")
    assert page.run(CONTRAST) == []
    assert page.run("document.documentElement.scrollWidth") <= width
    if width < 500:
        wide = "each => each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > 90"
        assert page.run(f"[...document.querySelectorAll('main td')].filter({wide}).length") == 0


def test_the_zone_of_a_peer_broker_is_shown_if_it_has_one(
    page: Page, clustered: tuple[BusyBroker, BusyBroker]
) -> None:
    west, _ = clustered
    show(page, west, "limits")
    heads = "[...document.querySelectorAll('main th button')].map(each => each.innerText)"
    for zone, wanted in (("", False), ("east", True)):
        page.run(
            "window.asked ??= window.fetch; window.fetch = async (path, more) => {"
            " const answer = await window.asked(path, more);"
            " if (!path.includes('/peers')) return answer;"
            " const found = await answer.json();"
            f" for (const row of found.rows) row.zone = '{zone}';"
            " return new Response(JSON.stringify(found), answer); }"
        )
        page.run("location.hash = '#/limits'")
        page.until(f"location.hash == '#/limits' && {READY}")
        page.run("location.hash = '#/peers'")
        page.until("document.querySelectorAll('main tbody tr').length == 3")
        page.until(f"{heads}.includes('Zone') == {str(wanted).lower()}")


def test_a_peer_broker_that_hangs_is_told_apart(page: Page) -> None:
    allow = ("--cluster-allow", "rsocket+tcp://127.0.0.1:*")
    uri = "rsocket+tcp://127.0.0.1:0"
    with (
        listening("--cluster-name", "own", "--cluster-advertise", uri, *allow) as own,
        listening("--cluster-name", "other", "--cluster-seed", own.uri, *allow) as other,
    ):
        show(page, own, "peers")
        page.until("document.querySelector('td .mark.good')?.innerText.includes('up')")
        other.process.kill()
        page.until("document.querySelector('td .mark.bad')?.innerText.includes('suspended')")
        page.see("0 of 1 peer broker up")


# --- by keyboard ----------------------------------------------------------------------------


def test_all_can_be_done_by_keyboard(page: Page, busy: BusyBroker) -> None:
    show(page, busy, "overview")
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.press("Enter")
    assert page.run("document.activeElement.id") == "content"
    page.run("document.activeElement.blur()")
    page.tab_to("it.matches('nav a') && it.textContent == 'Connections'")
    # What has the focus can be told from what has not.
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.run(outline) == "solid"
    page.press("Enter")
    page.until(f"location.hash == '#/connections' && {READY}")
    page.until("document.querySelector('main table')")
    page.until("document.activeElement.id == 'content'")

    page.tab_to("it.textContent == 'Requests'")
    sort = "document.activeElement.closest('th').getAttribute('aria-sort')"
    assert page.run(sort) == "none"
    page.press("Enter")
    page.until(f"{sort} == 'descending'")
    counts = [row for row in cells(page) if "k" not in row[6]]
    assert [int(row[6]) for row in counts] == sorted((int(row[6]) for row in counts), reverse=True)
    page.press("Space")
    page.until(f"{sort} == 'ascending'")


def test_a_dialog_keeps_the_focus_and_gives_it_back(page: Page, busy: BusyBroker) -> None:
    show(page, busy, "connections")
    page.until("document.querySelector('main table')")
    page.tab_to("it.textContent == 'Kick'")
    opener = page.run("document.activeElement.getAttribute('aria-label')")
    page.press("Enter")
    page.until("document.querySelector('dialog[open]')")
    for shift in (False, False, False, False, False, True, True, True, True):
        page.press("Tab", shift=shift)
        # The browser's own frame is between the last and the first one.
        script = (
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
        assert page.run(script)
    page.press("Escape")
    page.until("!document.querySelector('dialog')")
    assert page.run("document.activeElement.getAttribute('aria-label')") == opener


def test_a_connection_is_kicked_by_keyboard(page: Page) -> None:
    with busy_broker() as broker:
        show(page, broker, "connections")
        page.until("document.querySelectorAll('main tbody tr').length == 8")
        page.tab_to("it.textContent == 'Kick'")
        label = page.run("document.activeElement.getAttribute('aria-label')")
        number = int(label.removeprefix("Kick connection "))
        page.press("Enter")
        page.until("document.querySelector('dialog[open]')")
        page.tab_to("it.id == 'reason'")
        page.run("document.activeElement.select()")
        page.write("upgrade <b>now</b>")
        page.press("Enter")
        page.until("!document.querySelector('dialog')")
        page.run("document.querySelector('.tabs a:last-child').click()")
        page.see("by an operator")
        closed = broker.get("/api/v1/connections?state=closed&reason=by+an+operator")["rows"]
        assert [row["id"] for row in closed] == [number]


# --- when it asks ---------------------------------------------------------------------------


def asked(page: Page) -> list[str]:
    """Return the paths of the API that were asked for since the last look."""
    page.run("1")
    found = [re.sub("^http://[^/]+|[?].*", "", url) for url in page.requests if "/api/" in url]
    page.requests.clear()
    return found


def events_of(page: Page) -> list[str]:
    """Return the times and the texts of the events, the last one first."""
    found: list[str] = page.run(
        "[...document.querySelectorAll('.event')]"
        ".map(each => each.querySelector('time').dateTime + each.innerText)"
    )
    return found


async def joined_and_left(uri: str, service: str) -> None:
    """Have a destination join a broker, and leave it."""
    async with connect(uri, service=service):
        pass


@pytest.mark.parametrize("name", ["events", *exhaustive("overview")])
def test_a_hidden_page_asks_for_nothing(page: Page, busy: BusyBroker, name: str) -> None:
    show(page, busy, name)
    page.until("document.querySelector('.spark, .event')")
    page.hide(hidden=True)
    asked(page)
    before = events_of(page)
    time.sleep(4.5)  # more than two polls
    assert asked(page) == []
    page.hide(hidden=False)
    page.until("document.querySelector('.spark, .event')")
    end = time.monotonic() + TIMEOUT
    while not (found := asked(page)):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert found[0] == f"/api/v1/{name}"
    if name == "events":
        # It goes on after the last event: none comes twice before one that happens now.
        asyncio.run(joined_and_left(busy.uri, "late"))
        page.until("document.querySelector('.events').innerText.includes('late')")
        after = events_of(page)
        new, old = after[: -len(before)], after[-len(before) :]
        assert old == before
        assert new
        assert not set(new) & set(old)


@pytest.mark.exhaustive
def test_a_page_asks_once_in_two_seconds(page: Page, busy: BusyBroker) -> None:
    show(page, busy, "connections")
    page.until("document.querySelector('main table')")
    asked(page)
    time.sleep(5)
    assert 1 <= len(found := asked(page)) <= 3
    assert set(found) == {"/api/v1/connections"}


# --- what goes wrong ------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_broker_that_goes_and_comes_back(page: Page) -> None:
    with listening() as broker:
        show(page, broker, "limits")
        page.until("document.querySelectorAll('main tbody tr').length > 5")
        broker.process.kill()
        broker.process.wait(TIMEOUT)
        page.see("The broker is gone")
        page.see("Next attempt in")
        page.see("What you see below is what it said last.")
        assert len(cells(page)) > 5
        page.open("about:blank")
        page.faults.clear()
    with listening("--admin", broker.admin):
        show(page, broker, "limits")
        page.until("document.querySelectorAll('main tbody tr').length > 5")


def test_a_page_recovers_by_itself(page: Page) -> None:
    with listening() as broker:
        show(page, broker, "limits")
        page.until("document.querySelectorAll('main tbody tr').length > 5")
    page.see("The broker is gone")
    with listening("--admin", broker.admin):
        page.until(
            "!document.querySelector('.note.bad') && document.querySelector('main tbody tr')"
        )
    page.run("1")
    page.faults.clear()  # the browser tells of each connection that was refused


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[BusyBroker, str]]:
    """A broker with principals that may read, or read and operate, or nothing."""
    folder = tmp_path_factory.mktemp("guarded")
    principals, rules = folder / "principals.toml", folder / "rules.toml"
    command = [sys.executable, "-m", "onward.cli"]

    def run(*words: str, given: str = "") -> str:
        done = subprocess.run(
            [*command, *words, "--file", str(principals)],
            input=given,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()[0] if done.stdout else ""

    token = run("token", "new", "<i>reader</i>", "--role", "readers")
    run("password", "ann", "--role", "operators", "--stdin", given="correct horse battery\n")
    run("password", "eve", "--role", "none", "--stdin", given="correct horse battery\n")
    rules.write_text(
        '[[rule]]\nroles = ["readers", "operators"]\nread = true\n\n'
        '[[rule]]\nroles = ["operators"]\noperate = true\n'
    )
    with listening("--principals", str(principals), "--rules", str(rules)) as broker:
        yield broker, token


def test_a_token_is_kept_in_memory_and_may_only_read(
    page: Page, guarded: tuple[BusyBroker, str]
) -> None:
    broker, token = guarded
    page.open(f"{broker.admin}/#/overview")
    page.until("document.querySelector('#token')")
    for given, then in (("onw_wrong", "The broker did not accept this token."), (token, "<i>")):
        page.run("document.querySelector('#token').focus()")
        page.run("document.querySelector('#token').select()")
        page.write(given)
        page.press("Enter")
        page.see(then)
    page.see("<i>reader</i>")
    page.see("read only")
    page.until("document.querySelector('.spark')")
    assert page.run(
        "[...document.querySelectorAll('main button')].map(each => each.innerText)"
    ) == [
        *("Listener", "Connections", "Streams", "Requests", "Refused", "Received", "Sent"),
        *("Pending", "Certificate"),
    ]
    kept = "JSON.stringify({...localStorage}) + JSON.stringify({...sessionStorage})"
    assert token not in page.run(f"{kept} + document.cookie + document.body.outerHTML")
    assert page.run("document.cookie") == ""
    page.run("location.reload()")
    page.until("document.querySelector('#token')")
    page.faults.clear()  # the browser tells of each answer above 399


def test_a_name_and_a_password_are_asked_for_by_the_browser(
    page: Page, guarded: tuple[BusyBroker, str]
) -> None:
    broker, _ = guarded
    page.give_password("ann", "correct horse battery")
    page.open(f"{broker.admin}/")
    page.until("document.querySelector('a[href=\"/sign-in\"]')")
    page.run("document.querySelector('a[href=\"/sign-in\"]').click()")
    page.until("document.querySelector('.spark')")
    page.see("may operate")
    page.see("Drain")
    page.faults.clear()


def test_a_principal_that_may_not_read_is_told_so(
    page: Page, guarded: tuple[BusyBroker, str]
) -> None:
    broker, _ = guarded
    page.give_password("eve", "correct horse battery")
    page.open(f"{broker.admin}/sign-in")
    page.see("not allowed: read")
    page.open(f"{broker.admin}/#/limits")
    page.see("You may not see this")
    page.see("not allowed: read")
    page.faults.clear()


# --- operations -----------------------------------------------------------------------------


def press_in_dialog(page: Page, opener: str, confirm: str) -> None:
    page.run(
        "[...document.querySelectorAll('main button')]"
        f".find(each => each.innerText == {json.dumps(opener)}).click()"
    )
    page.until("document.querySelector('dialog[open]')")
    page.run(
        "[...document.querySelectorAll('dialog button')]"
        f".find(each => each.innerText == {json.dumps(confirm)}).click()"
    )


def test_a_broker_is_operated(page: Page) -> None:
    with listening() as broker:
        show(page, broker, "overview")
        page.until("document.querySelector('.operations button')")
        press_in_dialog(page, "Reload", "Cancel")
        page.until("!document.querySelector('dialog')")
        press_in_dialog(page, "Reload", "Reload")
        page.see("Reloaded.")
        press_in_dialog(page, "Log level", "Set the level")
        page.see("The level of the log is info.")
        press_in_dialog(page, "Drain", "Drain and stop")
        assert broker.process.wait(TIMEOUT) == 0
        page.see("The broker is gone")
        page.open("about:blank")
        page.faults.clear()


STATE = "[...document.querySelectorAll('.facts div')].map(each => each.innerText).join()"


def served(broker: BusyBroker) -> bytes:
    """Return the answer to a request of a client that has just come."""

    async def ask() -> bytes:
        async with connect(broker.uri) as client:
            return (await client.request("service=orders region=eu", b"new here")).data

    return asyncio.run(ask())


def test_a_drain_is_undone(page: Page) -> None:
    """While it lasts it is seen to, and can be undone; then the broker serves as before."""
    with busy_broker("--drain-grace", "600") as broker:
        show(page, broker, "overview")
        page.until("document.querySelector('.operations button')")
        connections = len(broker.get("/api/v1/connections")["rows"])
        press_in_dialog(page, "Drain", "Cancel")
        page.until("!document.querySelector('dialog')")
        assert broker.get("/api/v1/status")["draining"] is False
        press_in_dialog(page, "Drain", "Drain and stop")
        page.see("The broker drains, and stops then.")
        page.until(f"{STATE}.includes('drains, {connections} connections left')")
        page.see("it drains")  # a problem: it is not ready
        assert broker.get("/api/v1/status")["draining"] is True
        press_in_dialog(page, "Undo the drain", "Undo the drain")
        page.see("The broker serves again.")
        page.until(f"{STATE}.includes('serves')")
        page.until("!document.body.innerText.includes('it drains')")
        said = broker.get("/api/v1/status")
        assert (said["draining"], said["lost"]) == (False, 0)
        assert len(broker.get("/api/v1/connections")["rows"]) == connections
        assert served(broker) == b"new here"
        # It is the whole way back: the broker can be drained again.
        press_in_dialog(page, "Drain", "Drain and stop")
        page.until(f"{STATE}.includes('drains')")


def test_a_drain_is_undone_by_keyboard(page: Page) -> None:
    """The focus is where the next key belongs, though the button has changed under it."""
    with busy_broker("--drain-grace", "600") as broker:
        show(page, broker, "overview")
        page.until("document.querySelector('.operations button')")
        page.tab_to("it.textContent == 'Drain'")
        page.press("Enter")
        page.until("document.querySelector('dialog[open]')")
        page.tab_to("it.textContent == 'Drain and stop'")
        page.press("Enter")
        page.until("!document.querySelector('dialog')")
        page.until("document.activeElement.textContent == 'Undo the drain'")
        assert broker.get("/api/v1/status")["draining"] is True
        page.press("Space")
        page.until("document.querySelector('dialog[open]')")
        page.press("Escape")
        page.until("!document.querySelector('dialog')")
        assert broker.get("/api/v1/status")["draining"] is True
        page.until("document.activeElement.textContent == 'Undo the drain'")
        page.press("Enter")
        page.until("document.querySelector('dialog[open]')")
        page.tab_to("it.closest('dialog') && it.textContent == 'Undo the drain'")
        page.press("Enter")
        page.see("The broker serves again.")
        page.until("document.activeElement.textContent == 'Drain'")
        assert broker.get("/api/v1/status")["draining"] is False


def test_a_drain_that_cannot_be_undone_says_so(page: Page) -> None:
    """Its sockets are closed, and a request holds the broker: the dialog has the reason."""
    with busy_broker("--drain-grace", "0.1", "--drain-spread", "600") as broker:
        show(page, broker, "overview")
        page.until("document.querySelector('.operations button')")
        press_in_dialog(page, "Drain", "Drain and stop")
        page.until(f"{STATE}.includes('drains')")
        page.until(
            "[...document.querySelectorAll('main button')]"
            ".some(each => each.innerText == 'Undo the drain')"
        )
        assert closes_its_socket(broker)
        press_in_dialog(page, "Undo the drain", "Undo the drain")
        page.until("document.querySelector('dialog [role=alert]')")
        assert "the sockets are closed" in page.run("document.querySelector('dialog').innerText")
        broker.process.terminate()
        page.open("about:blank")
        page.faults.clear()  # the browser tells of each answer above 399


def closes_its_socket(broker: BusyBroker) -> bool:
    """Wait until the broker has closed its socket; return whether it has."""
    host, _, port = broker.uri.removeprefix("rsocket+tcp://").rpartition(":")
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        try:
            socket.create_connection((host, int(port))).close()
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_what_fails_is_said_in_the_dialog(page: Page) -> None:
    with listening() as broker:
        show(page, broker, "overview")
        page.until("document.querySelector('.operations button')")
        # As if another operator had an answer before: the broker refuses a second one.
        page.run(
            "window.fetch = (ask => (path, more) => path.endsWith('/reload')"
            ' ? Promise.resolve(new Response(\'{"error": "rules.toml: <b>line 3</b>"}\','
            " {status: 409, headers: {'content-type': 'application/json'}}))"
            " : ask(path, more))(window.fetch)"
        )
        press_in_dialog(page, "Reload", "Reload")
        page.see("rules.toml: <b>line 3</b>")
        assert page.run("!!document.querySelector('dialog[open]')")


def test_what_there_is_none_of(page: Page) -> None:
    with listening() as broker:
        for name, text in (
            ("connections", "No client is connected"),
            ("waiting", "No request waits"),
            ("events", "Nothing has happened"),
        ):
            show(page, broker, name)
            page.see(text)
        show(page, broker, "overview")
        page.see("Nothing is wrong")


def test_a_node_without_a_broker(page: Page) -> None:
    with onward("node", "--admin", "http://127.0.0.1:0", "--log", "error") as process:
        assert process.stdout is not None
        line = next(each for each in process.stdout if each.startswith("console "))
        page.open(line.removeprefix("console ").strip())
        page.until(f"document.querySelectorAll('.spark').length == 1 && {READY}")
        page.see("Nothing is wrong")
        shown: list[str] = page.run(
            "[...document.querySelectorAll('nav a')].map(each => each.innerText)"
        )
        assert shown == ["Overview", "Workers", "Topology", "Trace"]


def test_a_long_table_is_cut_and_says_so(page: Page, tmp_path: Path) -> None:
    index = tmp_path / "index.jsonl"
    routes = (SnapshotRoute(n.to_bytes(16), f"s{n:04}") for n in range(1, 1201))
    index.write_text("".join(format_route(each) + "\n" for each in routes))
    with listening("--index", str(index), "--no-management") as broker:
        show(page, broker, "routes")
        page.see("Only 1\u202f000 of 1\u202f200 destinations are shown")
        assert len(cells(page)) == 1000
        # The broker sorts: the first thousand of all are shown, not of those that were here.
        page.run("document.querySelector('th button').click()")
        page.until("document.querySelector('tbody th').innerText == 's1200'")


def test_a_broker_of_several_processes(page: Page) -> None:
    """Each row says of which process it is, and rows with the same name are told apart."""
    second = "[...document.querySelectorAll('main tr > :nth-child(2)')].map(each => each.innerText)"
    with brokers(2, "--admin", "http://127.0.0.1:0") as made:
        broker = BusyBroker(made.process, made.uri, made.admin().uri)
        said = broker.get("/api/v1/limits")["rows"]
        show(page, broker, "limits")
        page.until(f"document.querySelectorAll('main tbody tr').length == {len(said)}")
        head, *shown = page.run(second)
        assert head.strip() == "Process"
        assert sorted(shown) == sorted(str(row["process"]) for row in said)
        show(page, broker, "workers")
        page.until("document.querySelectorAll('main tbody tr').length > 2")
        head, *shown = page.run(second)
        assert head.strip() == "Process"
        assert set(shown) == {"0", "1"}


# --- how it looks ---------------------------------------------------------------------------

CONTRAST = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const parse = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = parse(getComputedStyle(each).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  const faults = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("svg, .unseen, option")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(style.color)), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) faults.push(`${walker.currentNode.data} ${ratio.toFixed(2)}`);
  }
  return faults;
})()
"""

LOOKS = [
    (name, scheme, width) for name in PAGES for scheme in ("light", "dark") for width in (360, 1280)
]
FEW_LOOKS = [("overview", "light", 1280), ("connections", "dark", 360), ("routes", "light", 360)]


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [*FEW_LOOKS, *exhaustive(*(each for each in LOOKS if each not in FEW_LOOKS))],
)
def test_a_page_can_be_read(
    page: Page, busy: BusyBroker, name: str, scheme: str, width: int
) -> None:
    page.size(width, 740, phone=width < 500)
    page.media(prefers_color_scheme=scheme)
    show(page, busy, name)
    page.until("document.querySelector('.card')")
    # WCAG 2.2, success criterion 1.4.3: "a contrast ratio of at least 4.5:1".
    assert page.run(CONTRAST) == []
    dark = page.run("matchMedia('(prefers-color-scheme: dark)').matches")
    assert dark == (scheme == "dark")
    # Success criterion 1.4.10: no scrolling in two dimensions.
    assert page.run("document.documentElement.scrollWidth") <= width
    if width < 500:
        assert page.run("!document.querySelector('thead')?.checkVisibility()")
        wide = "each => each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > 90"
        assert page.run(f"[...document.querySelectorAll('main td')].filter({wide}).length") == 0
        small = (
            "[...document.querySelectorAll('main button, nav a')].filter(each => "
            "each.checkVisibility() && each.getBoundingClientRect().height < 24).length"
        )
        # Success criterion 2.5.8: targets of 24 by 24 pixels.
        assert page.run(small) == 0


def test_the_colours_are_chosen_and_kept(page: Page, busy: BusyBroker) -> None:
    show(page, busy, "limits")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    for scheme in ("light", "dark"):
        page.run("document.querySelector('.scheme').click()")
        page.until(f"document.documentElement.dataset.scheme == '{scheme}'")
    assert page.run(ground) != light
    page.open("about:blank")
    show(page, busy, "limits")
    assert page.run("document.documentElement.dataset.scheme") == "dark"
    page.run("document.querySelector('.scheme').click()")
    page.until("!document.documentElement.dataset.scheme")


def test_nothing_moves_if_less_motion_is_wanted(page: Page, busy: BusyBroker) -> None:
    page.media(prefers_reduced_motion="reduce")
    show(page, busy, "limits")
    page.run("document.querySelector('main').innerHTML = '<div class=loading><span></span></div>'")
    name = "getComputedStyle(document.querySelector('.loading span')).animationName"
    assert page.run(name) == "none"


# --- pure functions -------------------------------------------------------------------------

TREE = """tree([
    {address: 'c', parent: 'a'}, {address: 'a', parent: null}, {address: 'b', parent: 'gone'}
]).map(row => row.address + row.depth)"""
BETWEEN = """between(
    [{service: 's', requests: 30, answered: 15, error: 5}],
    {s: {requests: 10, answered: 0, error: 0}}, 2
).map(row => [row.rate, row.success])"""

NONE = "\u2013"

CASES: list[tuple[str, str, Any]] = [
    ("format", "visible('a\\u0000\\u202eb\\u00e9<')", "a\\x00\\u202ebé<"),
    ("format", "visible(null)", ""),
    ("format", "short('abcdef', 4)", "abc…"),
    ("format", "short('😀😀', 2)", "😀😀"),
    ("format", "count(1234567)", "1\u202f234\u202f567"),
    ("format", "count(null)", NONE),
    ("format", "[0, 7, 999, 999.6, 1000, 12345, 2.5e9].map(brief)",
     ["0", "7", "999", "1.00 k", "1 k", "12.3 k", "2.50 G"]),
    ("format", "[0, 1023, 1024, 1536, 2 ** 40].map(bytes)",
     ["0 B", "1023 B", "1 KiB", "1.50 KiB", "1 TiB"]),
    ("format", "[null, 0, 0.00025, 0.0123, 1.5, 99, 3700].map(seconds)",
     [NONE, "0 s", "250 µs", "12.3 ms", "1.50 s", "99 s", "1 h 1 min"]),
    ("format", "[0, 59.9, 60, 90000, 86400].map(span)",
     ["0 s", "59 s", "1 min", "1 d 1 h", "1 d"]),
    ("format", "[null, 0, 0.00001, 0.5, 0.99999, 1].map(percent)",
     [NONE, "0 %", "< 0.01 %", "50 %", "99.99 %", "100 %"]),
    ("format", "counted(1, 'query') + ', ' + counted(2, 'query')", "1 query, 2 queries"),
    ("format", "counted(2, 'address')", "2 addresses"),
    ("format", "ordered([{a: 2}, {a: null}, {a: 3}], r => r.a, true).map(r => r.a)", [3, 2, None]),
    ("format", "ordered(['b10', 'b9', 'a'], r => r, false)", ["a", "b9", "b10"]),
    ("format", "query({a: 'x y&', b: null, c: '', d: 0})", "?a=x+y%26&d=0"),
    ("format", "quantile(0.5, [], [0, 0])", None),
    ("format", "quantile(1, [4, 0], [4, 2])", 0.000128),
    ("api", "[0, 1, 2, 3, 9].map(backOff)", [2000, 2000, 4000, 8000, 30000]),
    ("api", "parseEvents(': x\\n\\nid: a-1\\nevent: joined\\ndata: {\"at\":1}\\n\\nid: a')",
     {"events": [{"id": "a-1", "data": {"at": 1}}], "rest": "id: a"}),
    ("workers", TREE, ["a0", "c1", "b0"]),
    ("services", BETWEEN, [[10, 0.75]]),
    ("peers", "stateOf({state: 'up', draining: true, java: true})",
     "up, drains (Java: routes since the link)"),
    ("peers", "whyOf({state: 'connecting', reported_by: 'b', reason: 'refused'})",
     "reported by b; refused"),
    ("peers", "whyOf({state: 'up', reported_by: 'b', reason: null})", ""),
    ("peers", "[groupsOf({groups: 3, folded: 0}), groupsOf({groups: 3, folded: 1})]",
     ["3", "3, 1 folded"]),
    ("peers", "[routesOf({routes: 1200, suspended: 0}), routesOf({routes: 3, suspended: 2})]",
     ["1\u202f200", "3, 2 suspended"]),
    ("peers", ("brokersOf([{broker_id: 'a', state: 'up', routes: 3}, {broker_id: 'a', state: 'up',"
     " routes: 4}, {broker_id: '', uri: 'x', state: 'dialling', routes: 0}])"),
     [{"up": True, "routes": 4}, {"up": False, "routes": 0}]),
    ("limits", "['waiting.max_bytes', 'node.pending'].map(isOfBytes)", [True, False]),
]  # fmt: skip


def test_pure_functions(page: Page, busy: BusyBroker) -> None:
    show(page, busy, "limits")
    digest = page.run("document.querySelector('script').src.split('/')[4]")
    for module, expression, wanted in CASES:
        found = page.run(
            f"import('/console/{digest}/{module}.js').then(all => "
            f"new Promise(done => {{ const {{{', '.join(names(module))}}} = all;"
            f" done({expression}); }}))"
        )
        assert found == wanted, (expression, found)


def names(module: str) -> list[str]:
    """Return the names of the functions of a module that the cases call."""
    calls = " ".join(text for of, text, _ in CASES if of == module)
    known = {
        "format": "visible short count brief bytes seconds span percent counted ordered query "
        "quantile",
        "api": "backOff parseEvents",
        "workers": "tree",
        "services": "between",
        "limits": "isOfBytes",
        "peers": "brokersOf groupsOf routesOf stateOf whyOf",
    }[module].split()
    assert all(name in calls for name in known)
    return known
