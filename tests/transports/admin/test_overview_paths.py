"""The paths of what is wrong, of the last five minutes, and of what a principal may do."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from onward.actors.monitoring import Monitor
from onward.actors.security import AnonymousAuthenticator, Authentication
from onward.transports.admin import AdminPaths, HttpRequest, admin_paths
from tests.support.compiled import interpreted
from tests.support.http_peer import serving
from tests.support.rsocket_peer import World as MemoryWorld, in_world
from tests.support.transports import eventually
from tests.transports.admin.test_interface import world


async def test_what_is_wrong_is_said_with_what_to_do() -> None:
    async with world() as w:
        found = await w.json("/api/v1/problems")
        assert {each["subject"] for each in found["problems"]} == {
            "started: started",
            "ready: started",
        }
        for each in found["problems"]:
            assert set(each) == {"severity", "kind", "subject", "text", "advice"}
        w.monitor.started = True
        assert (await w.json("/api/v1/problems"))["problems"] == []


@pytest.mark.slow
async def test_the_overview_has_figures_and_the_last_minutes() -> None:
    async with world() as w:
        w.monitor.started = True
        await eventually(lambda: len(w.monitor.window.points()) > 0)
        found = await w.json("/api/v1/overview")
        assert found["problems"] == []
        assert found["broker"]["routes"] == 2  # with the management service
        assert found["broker"]["listeners"][0]["uri"] == w.uri
        lengths = {len(column) for column in found["points"].values()}
        assert lengths == {len(w.monitor.window.points())}
        assert set(found["points"]) >= {"at", "rate", "success", "p50", "p99", "lag"}


async def test_a_peer_without_authentication_may_operate() -> None:
    async with world() as w:
        found = await w.json("/api/v1/self")
        assert found["principal"] is None
        assert found["operate"] is True
        assert found["operations"] == sorted(w.broker.operations)
        assert (found["node"], found["broker"], found["ready"]) == ("world", True, False)


@pytest.mark.parametrize("operates", [False, True])
async def test_a_principal_sees_whether_it_may_operate(*, operates: bool) -> None:
    def permits(_: object, needs: str) -> bool:
        return needs == "read" or operates

    paths = AdminPaths()
    authentication = Authentication([AnonymousAuthenticator()])
    async with serving(paths, authentication=authentication, permits=permits) as served:
        made = admin_paths(Monitor(served.node))
        paths.add("/api/v1/self", made.find("GET", "/api/v1/self").handle)
        answer = await (await served.connect()).get("/api/v1/self")
        found = json.loads(answer.body)
        assert (found["principal"], found["operate"]) == ("anonymous", operates)
        assert found["broker"] is False


SLICE = 20
CONNECTIONS = 130


class Looks:
    """The entries that are looked at in each turn of the loop.

    Attributes:
        most: The most in one turn, by what was looked at.
        all: All of them.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.most = Counter[str]()
        self.all = Counter[str]()
        self._now = Counter[str]()
        self._over = False
        for name in ("transports.rsocket._listener._is_suspended", "actors._workers._counts"):
            patch.setattr(f"onward.{name}", self._counting(name, function_of(name)))

    def _counting(self, name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(entry: Any) -> Any:
            self._now[name] += 1
            return function(entry)

        return counted

    def turn(self) -> None:
        """Begin another turn, and one after each."""
        self.most |= self._now
        self.all += self._now
        self._now.clear()
        if not self._over:
            asyncio.get_running_loop().call_soon(self.turn)

    def stop(self) -> None:
        self._over = True
        self.turn()


def function_of(name: str) -> Any:
    module, _, function = f"onward.{name}".rpartition(".")
    return getattr(importlib.import_module(module), function)


async def asked(paths: AdminPaths, path: str) -> Any:
    answer = await paths.find("GET", path).handle(HttpRequest("GET", path))
    if isinstance(answer.body, bytes):
        return json.loads(answer.body)
    return b"".join([part async for part in answer.body])


@interpreted
@pytest.mark.parametrize("path", ["overview", "problems", "status"])
@pytest.mark.parametrize("times", [1, 5], ids="{} at a time".format)
def test_connections_are_looked_at_in_slices(
    path: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, and however many ask: a turn of the loop looks at so many."""
    monkeypatch.setattr("onward.transports.rsocket._listener.SLICE", SLICE)
    monkeypatch.setattr("onward.actors.routing._table.SLICE", SLICE)

    @in_world()
    async def run(w: MemoryWorld) -> None:
        for _ in range(CONNECTIONS):
            await w.requester()
        paths = admin_paths(Monitor(w.node, w.broker))
        looks = Looks(monkeypatch)
        looks.turn()
        answers = [asked(paths, f"/api/v1/{path}") for _ in range(times)]
        *_, found = await asyncio.gather(*answers)
        looks.stop()
        assert max(looks.most.values()) <= SLICE
        assert all(count >= times * CONNECTIONS for count in looks.all.values())
        if path != "problems":
            figures = found["broker"] if path == "overview" else found
            assert figures["listeners"][0]["connections"] == CONNECTIONS

    run()


@interpreted
def test_what_is_observed_every_half_minute_is_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onward.transports.rsocket._listener.SLICE", SLICE)
    monkeypatch.setattr("onward.actors.routing._table.SLICE", SLICE)

    @in_world()
    async def run(w: MemoryWorld) -> None:
        for _ in range(CONNECTIONS):
            await w.requester()
        monitor = Monitor(w.node, w.broker)
        looks = Looks(monkeypatch)
        looks.turn()
        monitor.window.start()
        for _ in range(4 * CONNECTIONS // SLICE):
            await asyncio.sleep(0)
        looks.stop()
        assert max(looks.most.values()) <= SLICE
        assert min(looks.all.values()) >= CONNECTIONS
        assert len(looks.all) == 2
        monitor.window.stop()
        # One that is in progress is given up with the window.
        monitor.window.start()
        monitor.window.stop()
        await w.loop.idle()
        assert len(monitor.window._observations) == 1

    run()
