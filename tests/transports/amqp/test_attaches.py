"""The attach of a link as the properties of a circuit: what is read, checked and written."""

from __future__ import annotations

from typing import Any

import pytest
from cbor2 import dumps

from onward.transports.amqp._attaches import (
    check_attach,
    read_attach,
    read_window,
    write_attach,
)
from onward.transports.amqp._port import Refused
from tests.support.amqp import needs_proton

proton = needs_proton()

SOURCE = [1, "jobs", 0, 1, 0, 0, False, b"", b"", b"", b""]
ATTACH = [1, 1000, 2, 0, 5, SOURCE, [2, *SOURCE[1:]], b""]


def link() -> Any:
    return proton.Connection().session().sender("jobs")


def test_what_is_read_of_a_link_is_written_to_another() -> None:
    items = check_attach(proton, dumps(ATTACH), 4096)
    made = link()
    write_attach(made, items)
    assert (made.snd_settle_mode, made.rcv_settle_mode, made.max_message_size) == (2, 0, 5)
    assert (made.source.type, made.source.address, made.target.type) == (1, "jobs", 2)
    assert read_window(read_attach(proton, made, 77)) == 77


@pytest.mark.parametrize("told", [b"", b"p", dumps([1, 2]), dumps([2, *ATTACH[1:]])])
def test_what_a_program_has_told_is_no_attach(told: bytes) -> None:
    assert read_window(told) == 0
    assert check_attach(proton, told, 4096) is None
    made = link()
    write_attach(made, None)
    assert made.source.address is None


def test_the_names_count_for_the_frame() -> None:
    told = dumps(ATTACH)
    room = len(told) + 256
    assert check_attach(proton, told, room) is not None
    assert check_attach(proton, told, room + 4, "jobs", None) is not None
    with pytest.raises(Refused) as caught:
        check_attach(proton, told, room + 3, "jobs")
    assert caught.value.condition == "amqp:frame-size-too-small"
