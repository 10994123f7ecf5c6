import json
from dataclasses import replace

import pytest

from pcnn.dataflows import Blocked, Reference
from pcnn.dataflows.tuning_table import REACH, Bucket, Choice, Signature, TuningTable

HERE = Signature("GPU sm_90", "3.6", "float16", 32, 64, 1, 27, "forward")
FAST = (Choice(Blocked(), 0.5),)
SLOW = (Choice(Reference(), 0.9),)
BLOCKS, PAIRS = Blocked().needs, Reference().needs


def test_sizes_fall_into_octaves_and_densities_into_halves_of_them() -> None:
    assert Bucket.of(100_000, 8) == Bucket(17, 3.0)
    assert Bucket.of(100_000, 5.8) == Bucket(17, 2.5)
    assert Bucket.of(1, 1) == Bucket(0, 0.0)
    assert Bucket.of(0, 0) == Bucket(0, -8.0)


def test_the_nearest_size_decides() -> None:
    small, large = (HERE, Bucket(12, 2.0), FAST), (HERE, Bucket(17, 2.0), SLOW)
    table = TuningTable([small, large])
    assert table.nearest(HERE, 13, BLOCKS) == (1.0, Blocked())
    assert table.nearest(HERE, 16, PAIRS) == (1.0, Reference())
    assert table.nearest(HERE, 17, PAIRS) == (0.0, Reference())


def test_nothing_is_borrowed_from_far_away_or_across_signatures() -> None:
    table = TuningTable([(HERE, Bucket(10, 2.0), FAST)])
    assert table.nearest(HERE, 10 + int(REACH), BLOCKS) is not None
    assert table.nearest(HERE, 11 + int(REACH), BLOCKS) is None
    other = Signature("GPU sm_80", "3.2", "bfloat16", 64, 32, 2, 8, "transposed")
    for name, value in vars(other).items():
        assert table.nearest(replace(HERE, **{name: value}), 10, BLOCKS) is None, name


def test_a_dataflow_that_needs_other_layouts_is_passed_over() -> None:
    both = (*FAST, *SLOW)
    table = TuningTable([(HERE, Bucket(17, 2.0), both), (HERE, Bucket(18, 2.0), FAST)])
    assert table.nearest(HERE, 18, PAIRS) == (1.0, Reference())
    assert table.nearest(HERE, 18, ("table",)) is None
    vvor = replace(HERE, product="vvor")
    other = Reference(needs=("table",))
    table = TuningTable([(vvor, Bucket(17, 2.0), (Choice(other, 1.0),))])
    assert table.nearest(vvor, 17, PAIRS) == (0.0, other)


def test_newer_decisions_count_and_others_stay() -> None:
    old = TuningTable([(HERE, Bucket(12, 2.0), FAST), (HERE, Bucket(17, 2.0), FAST)])
    new = TuningTable([(HERE, Bucket(17, 2.0), SLOW)])
    merged = old.updated(new)
    assert merged.exact(HERE, Bucket(12, 2.0)) == FAST
    assert merged.exact(HERE, Bucket(17, 2.0)) == SLOW
    assert merged.exact(HERE, Bucket(16, 2.0)) == ()
    assert (len(merged), len(old), len(new)) == (2, 2, 1)


def test_a_table_survives_a_file() -> None:
    table = TuningTable([(HERE, Bucket(12, 2.5), (*FAST, *SLOW)), (HERE, Bucket(17, 2.0), SLOW)])
    read = TuningTable.of_plain(json.loads(json.dumps(table.plain())))
    assert list(read) == list(table)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"rows": []},
        {"format": -1, "rows": []},
        {"format": 1, "rows": 3},
        {"format": 1, "rows": [7]},
        {"format": 1, "rows": [{"device": "x", "choices": []}]},
    ],
)
def test_something_else_is_no_table(content: object) -> None:
    with pytest.raises(ValueError):
        TuningTable.of_plain(content)


@pytest.mark.parametrize(
    "damage",
    [
        {"c_in": "many"},
        {"device": 3},
        {"log2_rows": None},
        {"choices": [{"name": "Blocked", "fields": {}}]},
        {"choices": [{"name": "Exotic", "fields": {}, "ms": 1.0}]},
        {"choices": ["Blocked"]},
    ],
    ids=str,
)
def test_a_damaged_row_is_refused(damage: dict[str, object]) -> None:
    plain = TuningTable([(HERE, Bucket(17, 2.0), FAST)]).plain()
    plain["rows"][0].update(damage)
    with pytest.raises(ValueError):
        TuningTable.of_plain(plain)
