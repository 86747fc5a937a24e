"""Workload files on SQLite, which needs no server."""

from __future__ import annotations

from pathlib import Path

import contend

BANK = Path(__file__).parents[2] / "workloads" / "bank.toml"


def test_sqlite_is_judged(tmp_path: Path) -> None:
    found = contend.sql(
        BANK, url=f"sqlite:{tmp_path / 'x.db'}", clients=3, seconds=0.1, verify_transactions=200, beside="silo", progress=False
    )
    assert found.ok and not found.partial and "SQLite" in found.server
    [level] = found.rows()
    assert level["level"] == level["promise"] == "serializable" and level["ok"] is True and level["anomaly"] is None
    assert level["transactions"] >= 200 and level["lost_writes"] == level["failed_invariants"] == 0
    assert {row["kind"] for row in found.latency.rows()} == {"transfer", "audit"}
    assert found.data["beside"]["protocols"][0]["protocol"] == "silo"
    assert "serializable" in repr(found) and "contend sql" in found._repr_html_()
    assert list(tmp_path.iterdir()) == [], "nothing is left in the database's folder"


# The sum overflows in the database where the recorded run has its own size.
OVERFLOW = """
name = 'overflow'
schema = 'create table t (id bigint primary key, a bigint)'
[parameters]
big = 1
[verify]
big = 9000000000000000
[rows]
t = 2
[fill]
't.a' = ':big * 1000'
[[transaction]]
name = 'read'
script = 'select a from t where id = 0;'
[[invariant]]
name = 'the sum'
equal = ['select sum(a) from t', 'select sum(a) from t']
"""


def test_a_failure_in_the_middle_leaves_what_was_found(tmp_path: Path) -> None:
    file = tmp_path / "overflow.toml"
    file.write_text(OVERFLOW)
    found = contend.sql(
        file, url=f"sqlite:{tmp_path / 'x.db'}", clients=2, seconds=0.05, verify_transactions=40, beside="silo", progress=False
    )
    assert found.error == "serializable: the check of the invariants: integer overflow"
    assert found.partial and not found.ok
    [level] = found.rows()
    assert level["level"] == "serializable" and level["throughput_tps"] > 0
    assert "integer overflow" in repr(found) + found._repr_html_()
