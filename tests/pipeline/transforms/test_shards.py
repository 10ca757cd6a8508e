"""Hot keys where many were met equally often, which random traffic has few of."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from pyspark.sql import SparkSession

from onward.pipeline.transforms import hot_keys
from onward.protocol.eventlog import Kind, Outcome
from tests.pipeline.transforms.rows import frame, hop
from tests.support.traffic import Row

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("top", [1, 40, 1000])
def test_the_hottest_keys_are_those_of_all_keys_sorted(top: int, spark: SparkSession) -> None:
    random = Random(top)
    rows, met = list[Row](), {1: Counter[int](), 2: Counter[int]()}
    for number in range(600):
        tagset = 1 + number % 2
        # Of one tag set nearly all keys are met once.
        key = random.getrandbits(64) - 2**63 if tagset == 1 else random.randint(1, 80) - 41 << 50
        weight = random.choice([1, 1, 1, 3]) if key else 0
        rows.append(
            hop(1, 0, 1, Outcome.DELIVER, kind=Kind.RESPONSE, tagset=tagset, key=key, weight=weight)
        )
        if key:
            met[tagset][key] += weight

    read = hot_keys(frame(spark, "hops", rows), top).collect()

    for tagset, counts in met.items():
        hottest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]
        found = [(row.shard_hash, row.frames, row.share) for row in read if row.tagset_id == tagset]
        assert len(found) == len(hottest)
        assert set(found) == {(key, n, n / counts.total()) for key, n in hottest}
