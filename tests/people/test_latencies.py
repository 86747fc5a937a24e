"""Interval logs of latencies, as HdrHistogram's Python package reads them."""

import json
import math

import pytest
from conftest import contend
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

QUANTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9}
MINUTE = 60_000_000_000


def read(path):
    """The sum of the histograms of each tag, and the number of its intervals."""
    summed, intervals = {}, {}
    reader = HistogramLogReader(str(path), HdrHistogram(1, MINUTE, 3))
    start = -1.0
    while (interval := reader.get_next_interval_histogram()) is not None:
        tag = interval.get_tag()
        assert interval.get_start_time_stamp() >= start, "the intervals are in the order of time"
        start = interval.get_start_time_stamp()
        summed.setdefault(tag, HdrHistogram(1, MINUTE, 3)).add(interval)
        intervals[tag] = intervals.get(tag, 0) + 1
    reader.close()
    return summed, intervals


def has_quantiles(times, quantile_of):
    count = times.get_total_count()
    for name, percentile in QUANTILES.items():
        # This package rounds the rank of a quantile to the nearest, and the result rounds it up.
        rank = math.ceil(percentile / 100 * count)
        assert times.get_value_at_percentile(100 * rank / count) == pytest.approx(quantile_of(name), rel=1e-3), name
    assert times.get_max_value() == pytest.approx(quantile_of("max"), rel=1e-3)


# The workload, the machine, the rate and what else the run needs. Tags hold the options of an entry.
RUNS = {
    "host": ["ycsb-a", "--protocols", "silo,mvto+cu=on", "--set", "ycsb.records=1000", "--seconds", "0.1", "--windows", "3"],
    "host, open loop": ["smallbank", "--protocols", "silo,2pl-nowait", "--rate", "5k", "--seconds", "0.2", "--windows", "3"],
    "host, log": ["smallbank", "--protocols", "silo", "--rate", "2k", "--set", "log=epoch", "--seconds", "0.2", "--windows", "3"],
    "chip": ["smallbank", "--protocols", "silo,mvto", "--machine", "abyss:4", "--windows", "4"],
    "chip, open loop": ["smallbank", "--protocols", "silo,mvto", "--machine", "abyss:4", "--rate", "1M", "--windows", "4"],
}


@pytest.mark.parametrize("arguments", RUNS.values(), ids=RUNS)
def test_a_log_has_the_quantiles_of_the_result(tmp_path, arguments):
    log, data = tmp_path / "out.hlog", tmp_path / "r.json"
    fixed = ["--no-verify", "--warmup", "0.0005", "--out", str(tmp_path / "out"), "--hdr", str(log), "--json", str(data)]
    contend("compare", *arguments, *fixed)
    summed, intervals = read(log)
    seen = set()
    for entry in json.loads(data.read_text())["protocols"]:
        measured = entry["measured"]
        for kind in measured["kinds"]:
            tag = f"{entry['protocol']}/{kind['kind']}"
            times = summed[tag]
            assert times.get_total_count() == kind["samples"] > 0, tag
            has_quantiles(times, lambda name: kind[f"latency_ns_{name}"])
            seen.add(tag)
            if "response" in kind:
                has_quantiles(summed[f"{tag}/response"], lambda name: kind["response"][f"{name}_ns"])
                seen.add(f"{tag}/response")
            assert 0 < intervals[tag] <= len(measured["windows"])
    assert seen == set(summed) and ("--rate" in arguments) == any(tag.endswith("/response") for tag in seen)


def test_a_run_writes_its_log_too(tmp_path):
    log = tmp_path / "out.hlog"
    contend("run", "ycsb-c", "--machine", "abyss:2", "--windows", "5", "--hdr", str(log))
    summed, intervals = read(log)
    assert set(intervals.values()) == {5} and all(times.get_total_count() > 0 for times in summed.values())
