"""Pages of every kind, made by the command that is to be tried (CONTEND), and a browser to look at them with."""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess

import pytest
import servers
from playwright.sync_api import sync_playwright

CONTEND = os.environ["CONTEND"]
# What would run, or break out of its place, if it were taken for HTML.
HOSTILE = "<script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\">&amp;"
EXPERIMENT = """
id = "tiny"
title = "Appends <script>document.title='ran'</script>"
question = "How fast is an append & how far does it scale?"
source = "nobody"
[run]
micro = "increments"
machine = "abyss"
seconds = 1e-5
windows = 2
seeds = 2
[[axis]]
name = "threads"
values = [1, 2, 3, 4, 6, 8, 12, 16]
[[series]]
name = "add <b>"
[plot]
x = "cores"
[published]
by = "them"
[published.curves]
"add <b>" = [[1, 5e6], [4, 2e6]]
"another" = [[1, 1e6], [16, 1e6]]
[[assertion]]
id = "falls"
paper = "more cores share one counter"
holds = 'T("add <b>", 1) > T("add <b>", 16)'
"""


def contend(*arguments, status=0):
    done = subprocess.run([CONTEND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{arguments}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def compared(folder, name, *arguments):
    contend("compare", *arguments, "--out", str(folder / name))
    return folder / name / "report.html"


def written(folder, name, *arguments):
    """The page of a verb that has one of its own."""
    contend(*arguments, "--out", str(folder / name))
    return folder / name / f"{name}.html"


def redrawn(folder, name, of, change):
    """The page of the result `of`, changed by hand."""
    result = json.loads((folder / of / "results.json").read_text())
    change(result)
    (folder / name).mkdir()
    (folder / name / "results.json").write_text(json.dumps(result))
    contend("report", str(folder / name))
    return folder / name / "report.html"


def failed(result):
    # What promises less shows a cycle under this contention.
    entry = next(entry for entry in result["protocols"] if entry["verification"]["cycle"])
    entry["protocol"], entry["isolation"], entry["measured"] = "broken", "serializable", None
    entry["verification"]["passed"] = False


def partial(result):
    result["partial"] = True


def hostile(result):
    result["config"]["workload"] = HOSTILE
    result["finding"] = HOSTILE
    result["recommendation"] = [HOSTILE]
    for entry in result["protocols"]:
        entry["protocol"] = (HOSTILE + "+option=" * 40)[:300]
        entry["verification"]["verdict"] = HOSTILE
        entry["verification"]["explanation"] = HOSTILE
        for edge in entry["verification"]["cycle"]:
            edge["key"] = edge["reason"] = HOSTILE
        for kind in entry["measured"]["kinds"]:
            kind["kind"] = HOSTILE


def many(result):
    """19 protocols with 24 types of transactions each."""
    entries = [entry for entry in result["protocols"] if entry["measured"]]
    result["protocols"] = []
    for number in range(19):
        entry = json.loads(json.dumps(entries[number % len(entries)]))
        entry["protocol"] = f"protocol-{number}"
        kinds = entry["measured"]["kinds"]
        entry["measured"]["kinds"] = [dict(kinds[kind % len(kinds)], kind=f"type {kind}") for kind in range(24)]
        result["protocols"].append(entry)


def databases(folder):
    """Pages of `contend sql`: a level that keeps its promise with arrivals and the engine beside it; and levels that show anomalies,
    from a file whose name would run if it were taken for HTML; and the table of anomalies.
    """
    workloads = pathlib.Path(__file__).parents[2] / "workloads"
    hostile = folder / f"{HOSTILE.replace('/', '')}.toml"
    shutil.copy(workloads / "counter.toml", hostile)
    small = ["--seconds", "0.2", "--clients", "4", "--verify-transactions", "400"]
    contend("sql", str(workloads / "bank.toml"), "--url", f"sqlite:{folder / 'bank.db'}", "--beside", "silo,si", "--rate", "200", "--out", str(folder / "sqlite"), *small)
    with servers.mariadb_server("--innodb-flush-log-at-trx-commit=0") as server:
        contend("sql", str(hostile), "--url", server.url, "--out", str(folder / "mariadb"), *small)
        contend("sql", "litmus", "--url", server.url, "--out", str(folder / "litmus"))
    return {name: folder / name / "report.html" for name in ["sqlite", "mariadb", "litmus"]}


@pytest.fixture(scope="session")
def pages(tmp_path_factory, worker_id):
    """A page of each kind, by name: made by the first worker that wants them, while the other waits."""
    here = tmp_path_factory.getbasetemp()
    folder = (here if worker_id == "master" else here.parent) / "pages"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        names = folder / "names.json"
        if not names.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            made = pages_in(folder)
            names.write_text(json.dumps({name: str(path) for name, path in made.items()}))
        return {name: pathlib.Path(path) for name, path in json.loads(names.read_text()).items()}


def pages_in(folder):
    tpcc = ["--protocols", "none,silo,si,2pl-nowait,silo+retry.backoff=adaptive+cu=on+ts=on", "--set", "tpcc.warehouses=1"]
    few = ["--verify-transactions", "2000"]
    small = ["--seconds", "0.1", "--windows", "3", "--warmup", "0.02", *few]
    on_chip = ["--set", "ycsb.records=10k", "--seconds", "1e-4", "--windows", "3", "--warmup", "5e-5", *few]
    made = {
        "default": compared(folder, "default", "--set", "ycsb.records=10k", "--seconds", "0.02", "--windows", "13", "--warmup", "0.02", *few),
        "kinds": compared(folder, "kinds", "tpcc", *tpcc, "--breakdown", *small),
        "log": compared(folder, "log", "ycsb-a", "--protocols", "silo", "--set", "log=epoch", "--set", "ycsb.records=10k", *small),
        "contended": compared(folder, "contended", "ycsb-a", "--protocols", "none,si,silo", "--set", "ycsb.records=100", *small),
        "chip": compared(folder, "chip", "ycsb-a", "--protocols", "none,silo,mvcc", "--machine", "abyss:16", *on_chip),
        "open": compared(folder, "open", "ycsb-a", "--protocols", "none,silo,mvto", "--machine", "abyss:4", "--rate", "300k", *on_chip),
        "saturation": written(folder, "saturation", "saturate", "ycsb-a", "--protocols", "silo,mvto", "--machine", "abyss:4", "--p99", "50us",
                              "--transactions", "1000", "--set", "ycsb.records=1k"),
        "advice": written(folder, "advice", "advise", "bank", "--budget", "5s", "--cores", "2,4", "--set", "bank.accounts=1k"),
        "failed": redrawn(folder, "failed", "contended", failed),
        "partial": redrawn(folder, "partial", "kinds", partial),
        "hostile": redrawn(folder, "hostile", "kinds", hostile),
        "many": redrawn(folder, "many", "kinds", many),
        **databases(folder),
    }
    (folder / "tiny.toml").write_text(EXPERIMENT)
    contend("sweep", str(folder / "tiny.toml"), "--out", str(folder / "sweep"))
    made["experiment"] = folder / "sweep" / "tiny" / "index.html"
    made["experiments"] = folder / "sweep" / "index.html"
    return made


@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium")
    assert path, ".ci/setup installs Chromium"
    with sync_playwright() as playwright:
        # As root there is no sandbox; the pages are our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
