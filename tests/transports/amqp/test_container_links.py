"""What is known of a link to a container, over all connections."""

from __future__ import annotations

import time

import pytest

from onward.transports.amqp import AmqpLinkState, AutoLink, LinkRoute
from onward.transports.amqp._container_links import LinkRecord, plan_of


def test_a_record_has_the_state_and_the_attempts_of_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(10, 20))
    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    record = LinkRecord(since=0.0)
    record.ended("it was never there")
    assert (record.state, record.since, record.reason) == (AmqpLinkState.WAITING, 0.0, "")
    record.begin()
    record.ended("amqp:not-found")
    record.begin()
    found = record.statistics("shop", AutoLink("in", "new-orders", "orders"))
    assert (found.container, found.kind, found.address) == ("shop", "in", "new-orders")
    assert (found.state, found.since) == (AmqpLinkState.ATTACHING, 12.0)
    assert (found.attempts, found.reason) == (2, "amqp:not-found")
    record.attached()
    record.ended("amqp:link:detach-forced")
    record.ended("the connection was lost")
    found = record.statistics("shop", LinkRoute("jobs"))
    assert (found.kind, found.address, found.name) == ("route", "jobs", "jobs")
    assert (found.state, found.since, found.attempts) == (AmqpLinkState.WAITING, 14.0, 0)
    assert found.reason == "amqp:link:detach-forced"


def test_the_links_of_a_file() -> None:
    assert plan_of("in", "a", "n") == AutoLink("in", "a", "n")
    assert plan_of("out", "a", "n") == AutoLink("out", "a", "n")
    assert plan_of("route", "", "n") == LinkRoute("n")
    with pytest.raises(ValueError, match="is in, out or route, not 'to'"):
        plan_of("to", "a", "n")
