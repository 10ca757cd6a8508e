"""Rows of a data frame as messages: from Spark to a worker, each once.

The worker is in this process, and Spark's tasks are in others, which reach it by TCP. That needs
Spark (`pip install '.[spark]'` in Onward's folder) and Java 17.

It prints

    1000 orders came, worth 499500
    the first is {"order":0,"price":0}
    sent again: 1000 rows were known, 0 were new
"""

from __future__ import annotations

import sys
from json import loads
from typing import TYPE_CHECKING

from onward.actors import Node
from onward.actors.batches import BatchWorker
from onward.protocol.batches import BatchRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# --8<-- [start:worker]
class Orders(BatchWorker):
    """A receiver of orders. Duplicate rows are dropped before they get here."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []

    async def handle_rows(self, rows: tuple[bytes, ...], batch: BatchRows) -> None:
        self.taken.extend(rows)


# --8<-- [end:worker]


# --8<-- [start:write]
def write(spark: SparkSession, uri: str) -> None:
    orders = spark.range(1000).selectExpr("to_json(struct(id as order, id as price)) as payload")
    (
        orders.write.format("onward")
        .mode("append")
        .option("uri", uri)
        .option("route", "orders")
        .option("id", "orders of 22 November")
        .option("epoch", 1)
        .save()
    )


# --8<-- [end:write]


def run(spark: SparkSession) -> None:
    worker = Orders()
    # Spark's calls block, so the node has a thread of its own.
    with Node.in_background() as node:
        node.start(lambda: worker, address="orders")
        listener = node.listen("tcp://127.0.0.1:0", expose=["orders"])
        write(spark, listener.uri)
        came = len(worker.taken)
        print(f"{came} orders came, worth {sum(loads(row)['price'] for row in worker.taken)}")
        print("the first is", min(worker.taken, key=len).decode())
        # As after a failure at an unknown row.
        write(spark, listener.uri)
        known = worker.statistics().duplicates
        print(f"sent again: {known} rows were known, {len(worker.taken) - came} were new")


def main() -> None:
    try:
        from onward.pipeline import JavaMissing, build_session
    except ImportError:
        sys.exit("this example needs Spark: pip install '.[spark]' in Onward's folder")
    try:
        spark = build_session("rows as messages")
    except JavaMissing as error:
        sys.exit(str(error))
    try:
        run(spark)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
