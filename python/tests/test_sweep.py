"""Sweeps, whole and in parts, and the charts that are made of results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
