"""What the verbs return."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import SHORT

import contend


def test_a_comparison_has_its_table_and_its_frames(compared: contend.Result) -> None:
    assert compared.ok and not compared.partial and compared.failures == {}
    assert {row["protocol"] for row in compared.rows()} == {"silo", "2pl-nowait"}
    assert "2pl-nowait" in repr(compared) and compared.finding in repr(compared)
    assert all(row["throughput_tps"] > 0 and not row["failed"] for row in compared)
    windows = compared.windows
    assert len(windows) == 4 and set(windows["round"]) == {1, 2}
    assert windows.columns()["commits"] == [row["commits"] for row in windows.rows()]
    assert set(compared.latency["kind"]) >= {"all"}


def test_a_curve_of_latencies_has_a_thousand_quantiles_that_rise(compared: contend.Result) -> None:
    curve = compared.latency.where(protocol="silo", kind="all")
    assert len(curve) == 1000 and curve["quantile"][-1] == 1.0
    assert curve["latency_ns"] == sorted(curve["latency_ns"])
    silo = next(row for row in compared if row["protocol"] == "silo")
    assert curve["latency_ns"][499] == silo["latency_ns_p50"]


def test_a_saved_result_is_loaded_and_run_again(compared: contend.Result, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    compared.save(file)
    loaded = contend.load(file)
    assert loaded.data == compared.data and loaded.rows() == compared.rows()
    assert len(loaded.latency.where(protocol="silo", kind="all")) == 6
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    again = contend.run(from_=file, protocol="silo", progress=False, seconds=0.02, windows=1)
    assert again.data["config"]["workload"] == "bank"
    with pytest.raises(OSError):
        compared.save(tmp_path / "nowhere" / "r.json")


def test_a_notebook_shows_the_report(compared: contend.Result) -> None:
    html = compared._repr_html_()
    assert html.startswith("<iframe") and "&lt;svg" in html and "<script" not in html
    assert "<table>" in compared.windows._repr_html_()


def test_the_history_of_a_run_is_judged(tmp_path: Path) -> None:
    result = contend.run("bank", protocol="silo", history=True, **SHORT)
    history = result.history
    assert history is not None and len(history) == len(history.transactions()) > 0
    assert history.check().ok and history.check("snapshot").level == "snapshot"
    history.save(tmp_path / "h.jsonl")
    verdict = contend.check(tmp_path / "h.jsonl")
    assert verdict.ok and verdict.anomaly is None and verdict.transactions == len(history)
    assert verdict.svg() is None
    assert contend.run("bank", **SHORT).history is None


def test_an_anomaly_is_drawn(tmp_path: Path) -> None:
    ops = [("read", "x", "write", "y"), ("read", "y", "write", "x")]
    lines = []
    for txn, (read, seen, write, changed) in enumerate(ops, start=1):
        table = {"table": "t"}
        lines.append({"txn": txn, "ops": [
            {"op": read, **table, "key": seen, "version": 0},
            {"op": write, **table, "key": changed, "version": txn, "over": 0},
        ]})
    file = tmp_path / "h.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    verdict = contend.check(file)
    assert not verdict.ok and verdict.anomaly == "G2-item"
    assert (verdict.svg() or "").startswith("<svg xmlns") and verdict._repr_html_().endswith("</svg>")
    assert contend.check(file, isolation="snapshot").ok


def test_an_exploration_finds_what_no_control_lets_through() -> None:
    found = contend.explore("none", "litmus-lost-update", schedules=200, progress=False)
    assert "found G" in found.rows()[0]["verdict"] and found.data[0]["found"]["steps"]
    assert found.ok and found.violations == [], "it promises nothing"
    assert "contend explore" in found.data[0]["again"]
    right = contend.explore("silo", "litmus-write-skew", schedules=50, progress=False)
    assert right.ok and right.violations == [] and right.rows()[0]["executions"] == 50


def test_a_simulated_chip_tells_where_the_time_went() -> None:
    result = contend.run("ycsb-a", machine="abyss:4", set={"ycsb.records": 1000}, windows=1, progress=False)
    shares = result.breakdown.where(division="category")["share"]
    assert len(shares) == 6 and sum(shares) == pytest.approx(1, abs=0.01)


def test_what_can_be_chosen_is_listed() -> None:
    assert "silo" in contend.protocols()["name"] and "bank" in contend.workloads()["name"]
    assert "native" in contend.machines()["name"]
    assert "retry.backoff" in contend.options()["name"]
    assert len(contend.options("silo")) < len(contend.options())
    frame = contend.protocols()
    with pytest.raises(KeyError, match="valid"):
        frame["nme"]
    assert "isolation" in repr(frame) and len(list(frame)) == len(frame)
