"""The endpoints of brokers, and connecting to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..rsocket._places import dialler_of, needs_tls
from ..streams._dial import Dialler

if TYPE_CHECKING:
    from ._options import ClientOptions

__all__ = ["BrokerEndpoint", "is_secure", "parse_place"]


class BrokerEndpoint(NamedTuple):
    """The endpoint of a broker.

    Attributes:
        uri: The URI as given.
        dialler: The endpoint, and its TLS.
    """

    uri: str
    dialler: Dialler


def parse_place(uri: str, options: ClientOptions) -> BrokerEndpoint:
    """Parse the URI of a broker, and load the certificates.

    Args:
        uri: As for `dialler_of`.
        options: The TLS, and the time for its handshake.

    Raises:
        OSError: A certificate cannot be read.
        ValueError: It is no such URI, or a certificate is wrong.
    """
    return BrokerEndpoint(uri, dialler_of(uri, options.tls, options.connect_timeout))


def is_secure(uri: str, options: ClientOptions) -> bool:
    """Whether a broker at a URI is connected to with TLS."""
    return options.tls is not None or needs_tls(uri)
