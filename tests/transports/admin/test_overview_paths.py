"""The paths of what is wrong, of the last five minutes, and of what a principal may do."""

from __future__ import annotations

import json

import pytest

from onward.actors.monitoring import Monitor
from onward.actors.security import AnonymousAuthenticator, Authentication
from onward.transports.admin import AdminPaths, admin_paths
from tests.support.http_peer import serving
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
