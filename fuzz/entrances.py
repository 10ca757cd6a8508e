"""Send random and mutated bytes to what is read before the protocol of a connection.

Two targets:

- `proxy`: the headers of proxies. Each prefix of an input is read too. The invariant: a header that
  lies within the input, "not whole yet", or `BadProxyHeader` with a short printable text; and once
  a prefix has decided, each longer one decides the same.
- `certificate`: the end of a certificate in DER. The invariant: a time or `None`, and no error.

    python fuzz/entrances.py --count 1000000 --seed 1 --target proxy
"""

from __future__ import annotations

import ssl
import sys
from random import Random
from typing import Final

import trustme
from _fuzzing import arguments_of, check_text_of, mutated, noise, run

from onward.transports.streams._certificate_end import not_after
from onward.transports.streams._proxy_protocol import (
    MAX_HEADER,
    SIGNATURE,
    BadProxyHeader,
    parse_proxy_header,
)

HEADERS: Final = [
    SIGNATURE + bytes.fromhex("2000 0000"),
    SIGNATURE + bytes.fromhex("2111 000c cb007107 c0000201 1267 01bb"),
    SIGNATURE + bytes.fromhex("2111 0013 cb007107 c0000201 1267 01bb 04000401020304"),
    SIGNATURE + bytes.fromhex("2121 0024") + bytes(range(36)),
    SIGNATURE + bytes.fromhex("2131 00d8") + b"/run/s".ljust(216, b"\0"),
    b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n",
]
PIECES: Final = [
    *(SIGNATURE, SIGNATURE[:5], b"PROXY ", b"\x20", b"\x21", b"\x11", b"\x21", b"\x31", b"\x00"),
    *(b"\xff\xff", MAX_HEADER.to_bytes(2), (MAX_HEADER - 16).to_bytes(2), b"\x00\x0c", b"\xff"),
]
DER: Final = [b"\x30", b"\x30\x82", b"\x30\x80", b"\xa0\x03", b"\x17\x0d", b"\x18\x0f", b"\x84" * 5]


def certificates() -> list[bytes]:
    """Return some certificates in DER."""
    made = (
        trustme.CA().issue_cert("a.example", "127.0.0.1"),
        trustme.CA(key_type=trustme.KeyType.RSA),
    )
    pems = [made[0].cert_chain_pems[0].bytes(), made[1].cert_pem.bytes()]
    return [ssl.PEM_cert_to_DER_cert(each.decode()) for each in pems]


def check_proxy(_: Random, data: bytes) -> bool:
    decided: object = None
    for size in range(len(data) + 1):
        found: object
        try:
            header = found = parse_proxy_header(data[:size])
            if header is not None and not 16 <= header.size <= min(size, MAX_HEADER):
                raise AssertionError(f"a header of {header.size} bytes in {size}")
        except BadProxyHeader as error:
            check_text_of(error)
            found = str(error)
        if decided is not None and found != decided:
            raise AssertionError(f"{decided!r} has become {found!r} at {size}")
        decided = found
    return decided is not None and not isinstance(decided, str)


def check_certificate(_: Random, data: bytes) -> bool:
    return not_after(data) is not None


def main(arguments: list[str] | None = None) -> int:
    targets = {
        "proxy": (HEADERS, PIECES, check_proxy),
        "certificate": (certificates(), DER, check_certificate),
    }
    parser = arguments_of(__doc__, count=50_000)
    parser.add_argument("--target", choices=sorted(targets), help="only this one")
    options = parser.parse_args(arguments)
    held: list[bool] = []
    for name, (seeds, pieces, check) in targets.items():
        if options.target not in {None, name}:
            continue

        def make(
            random: Random,
            number: int,
            seeds: list[bytes] = seeds,
            pieces: list[bytes] = pieces,
        ) -> bytes:
            if number < len(seeds):
                return seeds[number]
            return noise(random) if random.random() < 0.05 else mutated(random, seeds, pieces)

        held.append(run(name, options.count, options.seed, make, check))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
