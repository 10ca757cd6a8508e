from __future__ import annotations

from struct import Struct

import pytest

from onward.protocol.rsocket import _octets
from onward.protocol.rsocket._octets import OWN

FORMATS = (">BHIH", ">BH", ">I")


@pytest.mark.parametrize(("own", "layout"), list(zip(OWN, map(Struct, FORMATS), strict=True)))
@pytest.mark.parametrize("fill", [bytes(12), b"\xff" * 12, bytes(range(0x70, 0x7C))])
def test_numbers_are_read_as_struct_reads_them(own: object, layout: Struct, fill: bytes) -> None:
    assert callable(own)
    for at in range(12 - layout.size + 1):
        assert own(fill, at) == layout.unpack_from(fill, at)
    with pytest.raises(IndexError):
        own(fill, 12 - layout.size + 1)


def test_the_names_stand_for_what_is_faster() -> None:
    interpreted = str(_octets.__file__).endswith(".py")
    for own in OWN:
        assert (getattr(_octets, own.__name__) is own) is not interpreted
