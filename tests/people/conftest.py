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


FEW = ["--verify-transactions", "2000"]
SMALL = ["--seconds", "0.1", "--windows", "3", "--warmup", "0.02", *FEW]
ON_CHIP = ["--set", "ycsb.records=10k", "--seconds", "1e-4", "--windows", "3", "--warmup", "5e-5", *FEW]
ON_DATABASE = ["--seconds", "0.2", "--clients", "4", "--verify-transactions", "400"]
TPCC = ["--protocols", "none,silo,si,2pl-nowait,silo+retry.backoff=adaptive+cu=on+ts=on", "--set", "tpcc.warehouses=1"]
COMPARED = {
    "default": ["--set", "ycsb.records=10k", "--seconds", "0.02", "--windows", "13", "--warmup", "0.02", *FEW],
    "kinds": ["tpcc", *TPCC, "--breakdown", *SMALL],
    "log": ["ycsb-a", "--protocols", "silo", "--set", "log=epoch", "--set", "ycsb.records=10k", *SMALL],
    "contended": ["ycsb-a", "--protocols", "none,si,silo", "--set", "ycsb.records=100", *SMALL],
    "chip": ["ycsb-a", "--protocols", "none,silo,mvcc", "--machine", "abyss:16", *ON_CHIP],
    "open": ["ycsb-a", "--protocols", "none,silo,mvto", "--machine", "abyss:4", "--rate", "300k", *ON_CHIP],
}
# Verbs that have a page of their own.
WRITTEN = {
    "saturation": ["saturate", "ycsb-a", "--protocols", "silo,mvto", "--machine", "abyss:2", "--p99", "50us", "--transactions", "1000", "--set", "ycsb.records=1k"],
    "advice": ["advise", "bank", "--budget", "5s", "--cores", "2,4", "--set", "bank.accounts=1k"],
}
# Results that are changed by hand, each with the one that it is made of.
REDRAWN = {"failed": ("contended", failed), "partial": ("kinds", partial), "hostile": ("kinds", hostile), "many": ("kinds", many)}
WORKLOADS = pathlib.Path(__file__).parents[2] / "workloads"


class Pages:
    """A page of each kind, by its name. It is made when a test first asks for it, by the worker that runs this test. Another worker that wants
    the same page waits, and one that wants another makes that.
    """

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def __getitem__(self, name):
        with open(self.folder / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made, failed = self.folder / f"{name}.path", self.folder / f"{name}.failed"
            assert not failed.exists(), f"the page {name} could not be made: {failed.read_text()}"
            if not made.exists():
                try:
                    made.write_text(str(self.make(name)))
                except BaseException as error:
                    failed.write_text(str(error))
                    raise
            return pathlib.Path(made.read_text())

    def make(self, name):
        if name in COMPARED:
            return compared(self.folder, name, *COMPARED[name])
        if name in WRITTEN:
            return written(self.folder, name, *WRITTEN[name])
        if name in REDRAWN:
            of, change = REDRAWN[name]
            return redrawn(self.folder, name, self[of].parent.name, change)
        return getattr(self, name)()

    def experiment(self):
        (self.folder / "tiny.toml").write_text(EXPERIMENT)
        contend("sweep", str(self.folder / "tiny.toml"), "--out", str(self.folder / "sweep"))
        return self.folder / "sweep" / "tiny" / "index.html"

    def experiments(self):
        return self["experiment"].parents[1] / "index.html"

    def sqlite(self):
        """Of a level that keeps its promise, with arrivals and the engine beside it."""
        database = ["--url", f"sqlite:{self.folder / 'bank.db'}", "--beside", "silo,si", "--rate", "200"]
        return self.of_database("sqlite", str(WORKLOADS / "bank.toml"), *database, *ON_DATABASE)

    def mariadb(self):
        """Of levels that show anomalies, from a file whose name would run if it were taken for HTML."""
        hostile = self.folder / f"{HOSTILE.replace('/', '')}.toml"
        shutil.copy(WORKLOADS / "counter.toml", hostile)
        with servers.mariadb_server("--innodb-flush-log-at-trx-commit=0") as server:
            return self.of_database("mariadb", str(hostile), "--url", server.url, *ON_DATABASE)

    def litmus(self):
        with servers.mariadb_server("--innodb-flush-log-at-trx-commit=0") as server:
            return self.of_database("litmus", "litmus", "--url", server.url)

    def of_database(self, name, *arguments):
        contend("sql", *arguments, "--out", str(self.folder / name))
        return self.folder / name / "report.html"


@pytest.fixture(scope="session")
def pages(tmp_path_factory, worker_id):
    here = tmp_path_factory.getbasetemp()
    return Pages((here if worker_id == "master" else here.parent) / "pages")


@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium")
    assert path, ".ci/setup installs Chromium"
    with sync_playwright() as playwright:
        # As root there is no sandbox; the pages are our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
