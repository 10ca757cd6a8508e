"""Three brokers as a cluster for a soak, of which one is cut off each minute.

The links between them go through proxies of this process, which cut them, and refuse others for a
while. Clients are not cut off.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from _rivals import onward_at
from _soakcheck import Question
from _soakpeer import dial

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.proxy import CuttingProxy

__all__ = ["Cluster", "cluster"]

BROKERS: Final = 3
BETWEEN: Final = 60.0
"""Seconds between the starts of two partitions."""
LASTING: Final = 8.0
"""Seconds of a partition: others have found out by then, and requests have waited in vain."""
PATIENCE: Final = 60.0
"""Seconds until all links are back."""


@dataclass(slots=True)
class Cluster:
    """Brokers, and the proxies of the links between them.

    Attributes:
        pids: Their process ids.
        uris: The URIs that clients connect to, in turn.
        first: A URI of each broker.
        partitions: How often one of them was cut off.
    """

    pids: Sequence[int]
    uris: Sequence[str]
    first: Sequence[str]
    _proxies: dict[tuple[int, int], CuttingProxy]
    partitions: int = 0

    async def cut_now_and_then(self, chance: random.Random) -> None:
        """Cut off a random broker each minute, until the task is cancelled; then heal."""
        try:
            while True:
                await asyncio.sleep(BETWEEN - LASTING)
                which = chance.randrange(len(self.pids))
                self.partitions += 1
                for pair, proxy in self._proxies.items():
                    if which in pair:
                        proxy.refuses = True
                        proxy.cut()
                await asyncio.sleep(LASTING)
                self._heal()
        finally:
            self._heal()

    def _heal(self) -> None:
        for proxy in self._proxies.values():
            proxy.refuses = False

    async def joined(self) -> None:
        """Wait until each broker has a link with each other.

        Raises:
            TimeoutError: One has not, after a minute.
        """
        for uri in self.first:
            question = await dial(uri, Question())
            async with asyncio.timeout(PATIENCE):
                while await _up(question) < len(self.pids) - 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            question.transport.close()


async def _up(question: Question) -> int:
    found = await question.ask("/api/v1/peers?kind=broker")
    return sum(row["state"] == "up" for row in found["rows"])


@asynccontextmanager
async def cluster(folder: Path) -> AsyncGenerator[Cluster]:
    """Run three brokers, each with a link to each other.

    Args:
        folder: The folder of their Unix sockets.
    """
    pids: list[int] = []
    listening: list[Sequence[str]] = []
    proxies: dict[tuple[int, int], CuttingProxy] = {}
    async with AsyncExitStack() as stack:
        for number in range(BROKERS):
            words = ["--cluster-name", f"broker-{number}", "--log", "error"]
            for before, uris in enumerate(listening):
                port = int(uris[0].rpartition(":")[2])
                proxy = await stack.enter_async_context(CuttingProxy(port).running())
                proxies[before, number] = proxy
                words += ["--cluster-seed", f"rsocket+tcp://127.0.0.1:{proxy.port}"]
            if not listening:
                words += ["--cluster-advertise", "rsocket+tcp://127.0.0.1:0"]
            wanted = (
                "rsocket+tcp://127.0.0.1:0",
                "rsocket+ws://127.0.0.1:0",
                f"rsocket+unix://{folder}/{number}",
            )
            pid, uris = stack.enter_context(onward_at(*wanted, words=words))
            pids.append(pid)
            listening.append(uris)
        # In turn by broker and by transport, so that all pairs come.
        turns = [listening[at % BROKERS][at % 3 - at // BROKERS % 3] for at in range(3 * BROKERS)]
        made = Cluster(pids, turns, [uris[0] for uris in listening], proxies)
        await made.joined()
        yield made
