"""Contents of data frames; the libraries themselves are no dependencies."""

from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from evo.api import counted
from operators.errors import UserError


def test_sums_become_integers_and_differences_of_times_durations() -> None:
    huge = pa.decimal128(38, 0)
    table = pa.table(
        {
            "sum": pa.array([Decimal(3), None], huge),
            "larger": pa.array([Decimal(2**63), Decimal(1)], huge),
            "share": pa.array([Decimal("1.25"), None], pa.decimal128(9, 3)),
            "took": pa.array([pa.MonthDayNano([0, 1, 1500]), None], pa.month_day_nano_interval()),
            "name": ["a", None],
        }
    )
    made = counted(table)
    assert made.column_names == table.column_names
    assert made.column("sum").to_pylist() == [3, None] and made.schema.field("sum").type == pa.int64()
    assert made.column("larger").to_pylist() == [2.0**63, 1.0]
    assert made.column("share").to_pylist() == [1.25, None] and made.schema.field("share").type == pa.float64()
    assert made.column("took").cast(pa.duration("us"), safe=False).to_pylist() == [
        timedelta(days=1, microseconds=1),
        None,
    ]
    assert made.column("name").to_pylist() == ["a", None]


@pytest.mark.parametrize(("months", "days", "told"), [(1, 0, "of months"), (0, 200_000, "of more than 292 years")])
def test_some_intervals_have_no_length(months: int, days: int, told: str) -> None:
    table = pa.table({"took": pa.array([pa.MonthDayNano([months, days, 0])], pa.month_day_nano_interval())})
    with pytest.raises(UserError, match=f"took holds intervals {told}"):
        counted(table)
