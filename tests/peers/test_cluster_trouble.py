"""Clusters of real brokers in a network of namespaces, in trouble, and clients of all makes.

Each broker is a process at a host of its own, which is killed, stopped, or cut off, one way or
both. A make that this machine does not have is left out, and the summary says why. Meanwhile
clients of all makes ask destinations of all makes at all brokers, by all interactions, one request
after the other. The elements of a stream are the first ones of those that were asked for, in their
order, also before an error. What is told without an answer arrives once, if there is no trouble
meanwhile, or none at the broker that both are at. A summary has what became of the requests of each
client: `cut` are streams that an error ended after some elements, and `sure` is what was told and
had to arrive.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from tests.peers.loads import finished, loaded
from tests.peers.networked import brokers, java_in, java_seed, joined, network_of
from tests.peers.trials import EXPECTED, OPTIONS, Record, Trial, absent_makes, record, trial_of
from tests.support.fixtures import Capsys

pytestmark = [pytest.mark.peer(requester="all", destination="all")]


async def test_three_brokers(tmp_path: Path, capsys: Capsys, record_property: Record) -> None:
    async with trial_of(3, tmp_path) as trial:
        await trial.populate()
        await trial.rest(capsys)
        async with trial.under_load():
            await trial.killed("b")
            await trial.stopped("c")
            await trial.cut_one_way("a", "c")
            await trial.parted("a", "bc")
        await trial.rest(capsys)
        await trial.check()
        record(trial, "three brokers", record_property)


async def test_five_brokers(tmp_path: Path, capsys: Capsys, record_property: Record) -> None:
    async with trial_of(5, tmp_path) as trial:
        await trial.populate()
        async with trial.under_load():
            await trial.stopped("e")
            await trial.parted("ab", "cde")
            await trial.killed("d")
            await trial.cut_one_way("b", "e")
        await trial.rest(capsys)
        await trial.check()
        record(trial, "five brokers", record_property)


async def test_nine_brokers(tmp_path: Path, capsys: Capsys, record_property: Record) -> None:
    async with trial_of(9, tmp_path) as trial:
        await trial.populate()
        async with trial.under_load():
            await trial.parted("abcd", "efghi")
            await trial.killed("g")
            await trial.stopped("i")
            await trial.cut_one_way("d", "f")
        await trial.rest(capsys)
        await trial.check()
        record(trial, "nine brokers", record_property)


async def test_a_rolling_restart_of_five(tmp_path: Path, record_property: Record) -> None:
    async with trial_of(5, tmp_path) as trial:
        uris = [each.uri for each in trial.made.values()]
        for at in range(len(uris)):
            # Each knows two brokers, and is at the next one while its own is away.
            places = ",".join((uris[at], uris[(at + 1) % len(uris)]))
            await trial.destination("onward", places, "echo")
        for number, make in enumerate(trial.requesters * 2):
            if make not in {"go", "rust"}:
                await trial.request(make, number, ["echo"])
        async with loaded(trial.loads):
            for each in trial.made.values():
                await each.end()
                await each.start()
                await joined(trial.made)
                for load in trial.loads:
                    await load.one_more()
            await finished(trial.loads)
        await trial.check(EXPECTED - {"canceled"})
        record(trial, "a rolling restart of five", record_property)
        assert [load.name for load in trial.loads if trial.in_doubt(load)] == []


async def test_the_java_broker_among_three(
    tmp_path: Path, capsys: Capsys, record_property: Record
) -> None:
    """It forgets what it was told when a link is lost, so its destinations join again then."""
    without = absent_makes("java")
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(network_of(["a", "b", "java"]))
        java = java_in(network, "java", stack)
        words = (*OPTIONS, *java_seed(network, "java"))
        made = await stack.enter_async_context(brokers(network, "ab", tmp_path, *words))
        await joined(made, "java")
        trial = await stack.enter_async_context(Trial.of(network, made, without))
        trial.java = java.uris[0]
        await trial.serve_java()
        await trial.populate()
        async with trial.under_load():
            await trial.killed("b")
            await trial.stopped("b")
            async with trial.calm.broken():
                java.process.send_signal(SIGSTOP)
                await trial.lost("a", "java")
                java.process.send_signal(SIGCONT)
            await trial.cut_one_way("java", "a")
            await trial.cut_one_way("b", "java")
            await trial.parted(["a", "b"], ["java"])
            await trial.serve_java()
            await trial.equal_tables()
        await trial.rest(capsys)
        await trial.check()
        record(trial, "the Java broker among three", record_property)
