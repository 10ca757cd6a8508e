"""A stable address for a route that breaks: the requester does not notice a lost connection.

The two ends of a session act like one worker. Messages carry only the addresses of the ends, not
those between them; the opening end pings, and finds another route when the current one is lost.

It prints:

    up, by the first connection
    [0#echo] <- [0#accepted] from 0#session: hello
    down: the first hop of the route stopped
    up, by another connection; the other end is the same: True
    [0#echo] <- [0#accepted] from 0#session: hello again
    the other end was told: good night
    closed: good night
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from onward.actors import Node, Worker
from onward.actors.sessions import (
    AcceptedSession,
    SessionClient,
    SessionOptions,
    SessionService,
    SessionServiceOptions,
    route_over,
)
from onward.protocol import Address, Message, RouteLike, route as route_of
from onward.protocol.sessions import LivenessOptions

OPTIONS = SessionOptions(liveness=LivenessOptions(ping_interval=1, retry=0.05))


class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        # The return route begins with the accepting end, which has a random address.
        print(f"[{message.to}] <- [0#accepted] ", end="")
        self.reply(message, message.payload)


def told(end: AcceptedSession) -> None:
    print(f"the other end was told: {end.cause}")


async def main() -> None:
    async with Node("here") as here, Node("there") as there:
        await there.start(Echo, address="echo")
        service = SessionService(
            expose=["echo"], options=SessionServiceOptions(session=OPTIONS), on_closed=told
        )
        await there.start(lambda: service, address="sessions")
        listener = await there.listen("tcp://127.0.0.1:0", expose=["sessions"])
        links: list[Address] = []

        @asynccontextmanager
        async def route() -> AsyncGenerator[RouteLike]:
            # Without the list of links, `route_over(here, listener.uri, "sessions")` would do.
            async with route_over(here, listener.uri, "sessions")() as found:
                links.append(route_of(found)[0])
                yield found

        def came_up(session: SessionClient) -> None:
            if len(links) == 1:
                print("up, by the first connection")
            else:
                print(f"up, by another connection; the other end is the same: {session.resumed}")

        def went_down(session: SessionClient) -> None:
            print(f"down: {session.cause}")

        session = await SessionClient.on(
            here, "session", route, options=OPTIONS, on_up=came_up, on_down=went_down
        )
        # It need not be up yet: messages are kept until it is.
        answer = await here.request("session => echo", b"hello", timeout=5)
        print(f"from {answer.return_route[0]}: {answer.payload.decode()}")

        await here.stop_worker(links[0])  # the connection is lost
        await session.until_down()
        answer = await here.request("session => echo", b"hello again", timeout=5)
        print(f"from {answer.return_route[0]}: {answer.payload.decode()}")

        await session.close("good night")  # it returns when the other end has confirmed
        print(f"closed: {session.cause}")


if __name__ == "__main__":
    asyncio.run(main())
