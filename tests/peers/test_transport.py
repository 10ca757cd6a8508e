"""rsocket-java's own tests of transports, `TransportTest`, with the broker in between.

They send up to 200,000 payloads of a channel, a thousand channels at a time, and payloads of
hundreds of kilobytes, and they look for buffers that nobody has released.
"""

from __future__ import annotations

import asyncio
import shutil

import pytest

from tests.peers.foreign import PeerMissing, built
from tests.peers.jvm import FAST_START
from tests.peers.programs import Program, running_broker

pytestmark = pytest.mark.peer(requester="java", destination="java")

BUILD_TIMEOUT = 300.0
"""Seconds. It fetches 20 MB."""
PATIENCE = 480.0
"""Seconds for all of them. They take two minutes where nothing else runs."""
SLOW = "makes 1 requestChannel request with 2,000,000 payloads"
"""The one that rsocket-java itself leaves out."""
COUNT = 19


@pytest.fixture(scope="session")
def command() -> list[str]:
    """The command of the program of `transport_test/`, without the class."""
    try:
        java = shutil.which("java")
        if java is None:
            raise PeerMissing("java is not installed")
        maven = ["mvn", "--quiet", "--batch-mode", "package"]
        target = built("transport_test", [maven], timeout=BUILD_TIMEOUT) / "target"
    except PeerMissing as error:
        pytest.skip(f"TransportTest: {error}")
    class_path = f"{target}/transport-test-peer.jar:{target}/lib/*"
    return [java, *FAST_START, "-Xmx1g", "-cp", class_path]


@pytest.mark.parametrize("fragment", [0, 16_384], ids=["whole", "fragments"])
async def test_the_tests_of_transports(command: list[str], fragment: int) -> None:
    outcomes: dict[str, tuple[str, ...]] = {}
    with running_broker() as uris:
        place = uris["tcp"].removeprefix("tcp://")
        options = [f"-Dbroker={place}", f"-Dfragment={fragment}"]
        words = [*command, *options, "onward.peers.TransportTests"]
        async with asyncio.timeout(PATIENCE), Program.running(*words) as program:
            while (line := await program.line_or_end()) != "END":
                assert line, "the program ended before its tests had"
                status, name, *why = line.split("\t")
                outcomes[name] = (status, *why)
    assert outcomes.pop(SLOW)[0] == "SKIPPED"
    assert {name: found for name, found in outcomes.items() if found[0] != "SUCCESSFUL"} == {}
    assert len(outcomes) == COUNT
