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
