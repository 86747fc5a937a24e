"""Sweeps, whole and in parts, and the charts that are made of results."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from conftest import SHORT

import contend
from contend import charts, cluster

EXPERIMENT = """
id = "tiny"
title = "Appends"
question = "How fast is an append?"
source = "nobody"
[run]
micro = "increments"
machine = "abyss"
seconds = 1e-5
windows = 2
[[axis]]
name = "threads"
values = [1, 2, 4]
[[series]]
name = "add"
[plot]
x = "cores"
[[assertion]]
id = "falls"
paper = "more cores share one counter"
holds = 'T("add", 1) > T("add", 4)'
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(EXPERIMENT)
    return file


def test_a_sweep_has_its_points_and_judges_its_assertions(experiment: Path, tmp_path: Path) -> None:
    sweep = contend.sweep(experiment, out=tmp_path / "sweep", progress=False)
    assert sweep.ok and not sweep.partial and "1 hold" in repr(sweep)
    assert sweep.points["x"] == [1, 2, 4] and set(sweep.points["series"]) == {"add"}
    assert sweep.assertions.rows()[0]["verdict"] == "holds"
    assert (tmp_path / "sweep" / "tiny" / "figure.svg").exists()
    again = contend.sweep(experiment, out=tmp_path / "sweep", progress=False)
    again = contend.sweep(experiment, out=tmp_path / "sweep", progress=False)
    assert "0 points measured, 3 kept" in repr(again)
    assert len(sweep.chart().to_dict()["data"]["values"]) == 3


def test_the_shards_of_an_executor_are_the_whole(experiment: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(max_workers=1) as executor:
        jobs = cluster.submit(experiment, executor, shards=2, out=tmp_path / "sweep", jobs=1)
        assert [job.result().split(":")[0] for job in jobs] == ["shard 1/2", "shard 2/2"]
    assert "0 points measured, 3 kept" in repr(contend.sweep(experiment, out=tmp_path / "sweep", progress=False))
    with pytest.raises(contend.InputError, match="1 or more"):
        cluster.submit(experiment, None, shards=0, out=tmp_path)


def test_submitit_measures_all_points(experiment: Path, tmp_path: Path) -> None:
    import submitit

    executor = submitit.AutoExecutor(folder=tmp_path / "jobs", cluster="debug")
    for job in cluster.submit(str(experiment), executor, shards=3, out=tmp_path / "sweep", jobs=1):
        job.result()
    assert "0 points measured, 3 kept" in repr(contend.sweep(experiment, out=tmp_path / "sweep", progress=False))


def processes(count: int) -> ProcessPoolExecutor:
    """Processes that have not inherited a run."""
    return ProcessPoolExecutor(max_workers=count, mp_context=multiprocessing.get_context("spawn"))


def measured(jobs: Iterable[Future[str]]) -> int:
    """How many points the jobs have measured: `shard 1/2: 3 points measured, 0 kept`."""
    return sum(int(job.result().split(": ")[1].split()[0]) for job in jobs)


def test_submissions_after_a_kill_and_beside_each_other_measure_each_point_once(tmp_path: Path) -> None:
    file, out = tmp_path / "many.toml", tmp_path / "sweep"
    file.write_text(EXPERIMENT.replace("1e-5", "2e-3").replace("[1, 2, 4]", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]"))
    points = out / "points"

    def submitted(executor: Executor, shards: int) -> list[Any]:
        return cluster.submit(file, executor, shards=shards, out=out, jobs=1)

    with processes(1) as executor:
        jobs = submitted(executor, 2)
        while not list(points.glob("*.json")):
            time.sleep(0.01)
        for process in multiprocessing.active_children():
            process.kill()
        with pytest.raises(BrokenProcessPool):
            for job in jobs:
                job.result()
    there = len(list(points.glob("*.json")))
    assert 1 <= there < 12
    # Two submissions at a time, and their parts are not the same.
    with processes(1) as first, processes(2) as second:
        both = [*submitted(first, 2), *submitted(second, 3)]
        assert measured(both) == 12 - there
    assert "0 points measured, 12 kept" in repr(contend.sweep(file, out=out, progress=False))
    kept = [json.loads(point.read_text()) for point in points.iterdir()]
    assert len(kept) == 12 and all(point["provenance"]["attempt"] == 1 for point in kept)


def test_charts_are_drawn_without_a_network(compared: contend.Result) -> None:
    import vl_convert

    chip = contend.run("ycsb-a", machine="abyss:4", set={"ycsb.records": 1000}, windows=1, progress=False)
    for chart in [charts.throughput(compared), charts.latency(compared), charts.breakdown(chip)]:
        svg = vl_convert.vegalite_to_svg(chart.to_json())
        assert svg.startswith("<svg") and svg.count("<path") > 3


def test_frames_become_those_of_other_packages(compared: contend.Result) -> None:
    import pandas
    import polars

    assert isinstance(compared.windows.to_polars(), polars.DataFrame)
    frame = compared.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["protocol"]) == compared.columns()["protocol"]
    assert compared.to_polars().columns == list(frame.columns)
    assert contend.run("bank", **SHORT).breakdown.to_polars().height == 0


def test_what_reads_arrow_takes_a_frame_as_it_is(compared: contend.Result) -> None:
    import gc

    import pandas
    import polars
    import pyarrow

    windows = compared.windows
    for read in [polars.DataFrame, pyarrow.table, pandas.DataFrame.from_arrow]:
        table = read(windows)
        assert list(getattr(table, "column_names", None) or table.columns) == list(windows.names)
        assert len(table) == len(windows) > 0
    assert pyarrow.table(compared).column("protocol").to_pylist() == compared.columns()["protocol"]
    # Truth values, whole numbers, numbers, texts, what is missing, and what is too large.
    rows: list[contend.frame.Row] = [
        {"a": True, "b": 1, "c": 1, "d": "x", "e": None, "f": 2**70},
        {"a": None, "b": -2, "c": 0.5, "d": 3, "e": None, "f": "\ud800"},
    ]
    mixed = pyarrow.table(contend.frame.Frame("abcdef", rows))
    assert mixed.column("a").to_pylist() == [True, None] and mixed.column("b").to_pylist() == [1, -2]
    assert mixed.column("c").to_pylist() == [1.0, 0.5] and mixed.column("d").to_pylist() == ["x", "3"]
    assert mixed.column("e").to_pylist() == [None, None] and mixed.column("f").to_pylist()[0] == str(2**70)
    assert pyarrow.table(contend.frame.Frame("ab", [])).num_rows == 0
    # A stream that nobody reads is released, and one that was read is not released twice.
    for _ in range(1000):
        windows.__arrow_c_stream__()
        polars.DataFrame(windows)
    gc.collect()
