"""The recipes of docs/clusters.md, run as they are written there."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import CONTEND, EXPERIMENT, contend

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "clusters.md"


def recipe(name):
    found = re.search(rf"<!-- recipe: {name} -->\n+```\w+\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found, f"{DOCS.name} has no recipe '{name}'"
    return found[1]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with an experiment, from which `contend` is found."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "contend").symlink_to(CONTEND)
    (tmp_path / "E.toml").write_text(EXPERIMENT)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    contend("sweep", "E.toml", "--out", "whole")
    return tmp_path


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"


def is_as_the_whole(place):
    contend("plot", "sweep")
    for name in ["tiny/figure.svg", "tiny/points.csv", "verdicts.md"]:
        assert (place / "sweep" / name).read_bytes() == (place / "whole" / name).read_bytes(), name


def test_gnu_parallel_measures_all_points(place):
    run("bash", "-euo", "pipefail", "-c", recipe("parallel"))
    assert len((place / "jobs.log").read_text().splitlines()) == 1 + 16, "eight places from two seeds"
    is_as_the_whole(place)
    run("bash", "-euo", "pipefail", "-c", recipe("parallel"))


def test_dask_measures_all_points(place):
    (place / "recipe.py").write_text(recipe("dask"))
    run(sys.executable, "recipe.py")
    assert contend("sweep", "E.toml", "--out", "sweep", "--list") == ""
    is_as_the_whole(place)
