"""Bad input: one line that names the valid choices, and no traceback into Rust."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from conftest import SHORT

import contend
from contend import _contend, verbs

BANK = Path(__file__).parents[2] / "workloads" / "bank.toml"
# Flags of the command line for files and texts, which the result replaces, and for stdin.
REPLACED = {"json", "csv", "hdr", "out", "force", "help"}


@pytest.mark.parametrize(
    ("call", "valid"),
    [
        (lambda: contend.compare("ycsb-z"), "ycsb-a"),
        (lambda: contend.compare(""), "bank"),
        (lambda: contend.compare("-x"), "-x"),
        (lambda: contend.compare("bank", protocols=[]), "unknown protocol"),
        (lambda: contend.compare("bank", protocols="sillo"), "silo"),
        (lambda: contend.compare(threads=-1), "below 0"),
        (lambda: contend.compare(threads=0), "threads"),
        (lambda: contend.compare(threads="1.5"), "whole number"),
        (lambda: contend.compare(threads=True), "threads"),
        (lambda: contend.compare(seconds="nan"), "seconds"),
        (lambda: contend.compare(set={"ycsb.thta": 1}), "ycsb.theta"),
        (lambda: contend.compare(set={"ycsb.theta": "x" * 100_000}), "ycsb.theta"),
        (lambda: contend.compare(rate="200q"), "rate"),
        (lambda: contend.compare(progress="yes"), "progress"),  # type: ignore[arg-type]
        (lambda: contend.compare(late="1ms"), "--rate"),
        (lambda: contend.compare(from_="/nowhere.json"), "/nowhere.json"),
        (lambda: contend.run("bank", protocol="silo,occ"), "compare"),
        (lambda: contend.explore("silo", "litmus-nothing"), "litmus"),
        (lambda: contend.explore("silo", schedules=0), "schedules"),
        (lambda: contend.advise(budget="1s"), "5"),
        (lambda: contend.saturate(p99="fast"), "p99"),
        (lambda: contend.check("-"), "path"),
        (lambda: contend.sweep([]), "FILE"),
        (lambda: contend.sweep("/nowhere.toml"), "/nowhere.toml"),
        (lambda: contend.sweep("/nowhere.toml", shard="0/4"), "shard"),
        (lambda: contend.check("/nowhere"), "/nowhere"),
        (lambda: contend.sql("/nowhere.toml", url="sqlite:/nowhere/x"), "/nowhere.toml"),
        (lambda: contend.sql("bank", url="sqlite:/nowhere/x"), "the path of a workload file"),
        (lambda: contend.sql("litmus", url="sqlite:/nowhere/x"), "command line"),
        (lambda: contend.sql(BANK, url="-"), "the URL itself"),
        (lambda: contend.sql(BANK, url="oracle://me@localhost/db"), "postgres://"),
        (lambda: contend.sql(BANK, url="sqlite:/nowhere/x"), "unable to open"),
        (lambda: contend.sql(BANK, url="sqlite:/nowhere/x", clients=0), "1 to 1000"),
        (lambda: contend.load("/nowhere"), "/nowhere"),
        (lambda: contend.options("sillo"), "silo"),
        (lambda: contend.run("bank", **{**SHORT, "threads": 100_000}), "valid"),
    ],
)
def test_bad_input_is_refused_in_one_line(call: Any, valid: str) -> None:
    with pytest.raises(contend.InputError) as refused:
        call()
    message = str(refused.value)
    assert valid in message and "\n" not in message and len(message) < 3000, message
    assert isinstance(refused.value, ValueError)


def test_a_broken_line_of_a_history_is_named(tmp_path: Path) -> None:
    file = tmp_path / "h.jsonl"
    line = '{"txn":%d,"ops":[{"op":"read","table":"t","key":"x","version":0}]}\n'
    file.write_text("".join(line % txn for txn in range(1, 7)) + '{"txn":7,"ops":[\n')
    with pytest.raises(contend.InputError, match="line 7"):
        contend.check(file)


@pytest.mark.parametrize("verb", ["compare", "run", "saturate", "advise", "explore", "sweep", "sql", "check"])
def test_each_argument_is_a_flag_and_each_flag_an_argument(verb: str) -> None:
    function = getattr(verbs, verb)
    arguments = {name.rstrip("_").replace("_", "-") for name in inspect.signature(function).parameters}
    flags = {name for name, _, _, _ in _contend.flags(verb)}
    # A sweep's folder is its result.
    replaced = {"sweep": {"list", "hash"}, "sql": {*REPLACED, "history"}}.get(verb, REPLACED)
    assert arguments - {"progress"} == flags - replaced
    assert all(f"    {name}: " in (function.__doc__ or "") for name in inspect.signature(function).parameters if name != "progress")


def test_values_become_the_arguments_of_the_command_line(tmp_path: Path) -> None:
    values = {"workload": tmp_path, "protocols": ["a", "b"], "threads": 2, "breakdown": True, "limit": False, "from_": None}
    options = {"set": {"cu": True, "ts": False, "x": 0.5}, "no_verify": True}
    assert verbs.arguments_of("compare", {**values, **options}) == [
        "compare", "--protocols=a,b", "--threads=2", "--breakdown", "--set=cu=on", "--set=ts=off", "--set=x=0.5",
        "--no-verify", "--", str(tmp_path),
    ]


def test_a_missing_package_is_named(compared: contend.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install polars"):
        compared.to_polars()
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        compared.windows.to_pandas()
