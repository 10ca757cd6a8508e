"""What a write may be told, and what it is told in turn when that will not do."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from onward.pipeline.sink import BatchWriter, read_options

NODE = {"uri": "tcp://h:1", "route": "rows"}
BROKER = {"uri": "rsocket+tcp://h:1", "query": "service=rows"}


def schema(**types: type) -> StructType:
    made = StructType()
    for name, kind in types.items():
        made.add(name, kind())
    return made


PAYLOAD = schema(payload=BinaryType)


def test_what_is_not_said_has_a_default() -> None:
    options = read_options(NODE, PAYLOAD)
    assert (options.uri, options.destination, options.payload) == ("tcp://h:1", "rows", "payload")
    assert (options.epoch, options.chunk_rows, options.window) == (0, 500, 8)
    assert not options.to_broker
    assert read_options(BROKER, schema(payload=StringType)).to_broker


def test_each_write_without_an_id_is_a_work_of_its_own() -> None:
    assert read_options(NODE, PAYLOAD).id != read_options(NODE, PAYLOAD).id
    assert read_options({**NODE, "id": "mine", "epoch": "7"}, PAYLOAD).id == "mine"


def test_names_of_options_have_no_case() -> None:
    options = read_options({**NODE, "CHUNKROWS": "7", "timeOut": "1.5"}, PAYLOAD)
    assert (options.chunk_rows, options.timeout) == (7, 1.5)


def test_each_row_may_say_where_it_goes() -> None:
    options = read_options(
        {"uri": "tcp://h:1", "payload": "body"}, schema(route=StringType, body=StringType)
    )
    assert (options.destination, options.column, options.payload) == (None, "route", "body")


@pytest.mark.parametrize(
    ("given", "columns", "said"),
    [
        ({}, PAYLOAD, "say where the rows go"),
        ({**NODE, "chunk_rows": "5"}, PAYLOAD, "no option 'chunk_rows'; it has uri, .*chunkRows"),
        ({**NODE, "query": "x=y"}, PAYLOAD, "asked by a route, not a query"),
        ({**BROKER, "route": "x"}, PAYLOAD, "asked by a query, not a route"),
        ({**NODE, "chunkRows": "0"}, PAYLOAD, "chunkRows is '0', not a number from 1 to 100000"),
        ({**NODE, "window": "many"}, PAYLOAD, "window is 'many'"),
        ({**NODE, "timeout": "soon"}, PAYLOAD, "timeout is 'soon'"),
        ({**NODE, "timeout": "0"}, PAYLOAD, "timeout is '0'"),
        ({**NODE, "epoch": "3"}, PAYLOAD, "epoch without id"),
        ({**NODE, "id": "daily"}, PAYLOAD, "id without epoch: a second write .* is dropped"),
        ({**NODE, "id": ""}, PAYLOAD, "id has 0 bytes"),
        ({**NODE, "id": "é" * 51}, PAYLOAD, "id has 102 bytes, not 1 to 100"),
        (NODE, schema(body=BinaryType), "no column 'payload' among body: name the column"),
        ({"uri": "tcp://h:1"}, PAYLOAD, "no column 'route' .* give the option 'route' or the"),
        (NODE, schema(payload=IntegerType), "'payload' is int: .* Cast it, or make JSON"),
        ({"uri": "tcp://h:1"}, schema(route=BinaryType, payload=BinaryType), "'route' is binary"),
        (NODE, schema(payload=BinaryType, key=StringType), "'key' would not be sent: select"),
    ],
)
def test_wrong_options_have_advice(given: dict[str, str], columns: StructType, said: str) -> None:
    with pytest.raises(Exception, match=said) as raised:
        read_options(given, columns)
    assert type(raised.value).__name__ == "BadOption"


def test_messages_cannot_be_overwritten() -> None:
    with pytest.raises(Exception, match="write with append"):
        BatchWriter(PAYLOAD, True, NODE)
