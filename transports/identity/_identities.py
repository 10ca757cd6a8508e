"""`Identities`: what a program does with the identities of a node."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...actors.access import Exposed
from ...actors.identity import (
    ROUTER,
    Correspondence,
    IdentityKeys,
    IdentityOptions,
    Relays,
    RouterWorker,
    load_key_file,
)
from ...protocol import (
    Address,
    AddressLike,
    address as as_address,
)
from ...protocol.identity import (
    SEED_SIZE,
    Identity,
    RelayLoadLimits,
    RelayPolicy,
    ReservationLimits,
    SealingKeys,
    SigningKey,
)
from ...protocol.options import check_value
from ._correspondent import Correspondent
from ._directory_calls import DirectoryCalls
from ._domain_calls import DomainCalls
from ._message_calls import MessageCalls
from ._relay_calls import RelayCalls
from ._topic_calls import TopicCalls

if TYPE_CHECKING:
    from ...actors import Node

__all__ = ["Identities"]

_OPTIONS: Final = IdentityOptions()


class Identities(MessageCalls, TopicCalls, DomainCalls, RelayCalls, DirectoryCalls):
    """The identities of a node: messages to public keys, which are resolved by the rule of 36.

    ```python
    identities = await Identities.attach(node, SigningKey(seed))
    orders = identities.engine("orders")  # a worker, which now has an identity
    await identities.join("tcp://127.0.0.1:4000", identity=b)  # a node, which proves its key
    answer = await identities.request(far, b"12 apples")  # an engine there, or a destination
    ```

    All its methods are called on the node's loop. Nothing of it can be reached from outside but
    what is exposed: `ROUTER` at a listener, for other nodes.

    Args:
        worker: The worker of its router.
    """

    @classmethod
    async def attach(
        cls,
        node: Node,
        key: SigningKey | IdentityKeys | Path,
        options: IdentityOptions = _OPTIONS,
        *,
        passphrase: str | None = None,
        expose: Iterable[AddressLike] = (),
        allow: Iterable[AddressLike] = (),
        addresses: Iterable[str] = (),
        directory: Path | None = None,
        clock: Callable[[], float] | None = None,
        relay: RelayPolicy | None = None,
        relay_limits: RelayLoadLimits | None = None,
        reservation_limits: ReservationLimits | None = None,
    ) -> Identities:
        """Give a node an identity.

        Args:
            node: The node.
            key: Its key file, which no other user may read, or its keys, as of `load_key_file`; or
                the one to sign with alone, to which a key to seal to is drawn. What is sealed to
                that one cannot be read after a restart.
            options: The options.
            passphrase: The passphrase of the key file, if it is encrypted.
            expose: The addresses that other identities may send to, by `36#node:… => address`, for
                the node itself; none by default. Engines need not be among them.
            allow: As for `Node.listen`.
            addresses: The URIs by which other nodes reach it, which its advert has; see
                `advertise`.
            directory: The file that remembers what the node knows of identities, its bans included;
                it is made if it is not there. `None`: the node forgets it when it stops.
            clock: Returns the time since the Unix epoch, in seconds, such as that of a simulation;
                by default that of the machine.
            relay: What the node relays for others; by default nothing.
            relay_limits: The limits of what it spends on that.
            reservation_limits: The limits of reservations.

        Raises:
            AddressInUse: The node has an identity.
            OSError: The key file cannot be read.
            KeyFileRefused: Other users may read or write it, another user owns it, it is no key
                file, it is damaged, or the passphrase is wrong.
            PassphraseNeeded: It is encrypted, and there is no passphrase.
            BadKey: It is encrypted, and the passphrase is empty or too long.
            DirectoryFileInUse: Another node has the file of the directory.
            DirectoryFileFailed: It cannot be opened, or is damaged.
            NewerDirectory: A newer version of Onward has written it.
        """
        check_value("options", options, IdentityOptions)
        now = time.time if clock is None else clock
        if isinstance(key, Path):
            # It waits for the disk, and half a second for an encrypted file.
            key = await asyncio.to_thread(load_key_file, key, passphrase)
        if isinstance(key, IdentityKeys):
            signing, sealing = key.signing, key.sealing_keys()
        else:
            signing, sealing = key, SealingKeys(secrets.token_bytes(SEED_SIZE))
        worker = RouterWorker(signing, sealing, options, lambda: int(now() * 1000), directory)
        await node.start(lambda: worker, address=ROUTER)
        allowed = tuple(map(as_address, allow))
        exposed = Exposed(map(as_address, expose), allowed)
        relays = Relays(
            worker.router,
            worker,
            signing,
            sealing,
            anonymous=options.anonymous,
            tells_wishes=options.tells_wishes,
            policy=relay,
            limits=relay_limits,
            reservations=reservation_limits,
        )
        worker.router.add_part(relays)

        def open_link(own: Identity, identity: Identity) -> tuple[Correspondence, Address]:
            served = worker.domains.served.get(own)
            here = exposed if served is None else Exposed((served.worker, *served.expose), allowed)
            link = Correspondent(
                own,
                identity,
                worker.router,
                here,
                relays,
            )
            return link, worker.spawn(lambda: link)

        worker.router.links.open = open_link
        made = cls(worker)
        made._relays = relays
        for each in addresses:
            made.advertise(each)
        return made

    async def join(self, to: str | Address, *, identity: Identity | None = None) -> Identity:
        """Join another node over a link, once both have proved their keys.

        The link is dialled again after a loss. If it was one of the other node, as both have joined
        each other, `to` is dialled after a while; and the addresses in the newest advert of the
        node, by the schemes of `IdentityOptions.dials`.

        Args:
            to: The URI to connect to, or the address of a link.
            identity: The identity that the other node must have; `None`: any, which is then that of
                the node that has answered there.

        Returns:
            The identity of the other node.

        Raises:
            PeerRefused: The other node has not proved its key in time, has another identity, or
                refuses; or this node has as many links as it may, or its router has ended; or the
                connection was lost meanwhile.
            LinkDown: There is no connection.
            UnknownAddress: There is no such link.
        """
        node = await self._router.peers.join(to, identity)
        self._router.dialling.keep(node, to)
        return node

    def peers(self) -> tuple[Identity, ...]:
        """Return the nodes that have proved their keys and take messages."""
        sessions = self._router.peers.sessions
        return tuple(node for node, session in sessions.items() if session.is_greeted)
