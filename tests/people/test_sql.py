"""Workload files on real servers: PostgreSQL and MariaDB, each started for the test in a folder of its own."""

import json
import os
import signal
import subprocess

import pytest
import servers
from servers import Server

CONTEND = os.environ["CONTEND"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SMALL = ["--clients", "4", "--seconds", "0.5", "--verify-transactions", "1000"]
HOT = ["--set", "bank.accounts=10"]


@pytest.fixture(scope="module")
def postgres():
    with servers.postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def mariadb():
    with servers.mariadb_server("--innodb-flush-log-at-trx-commit=0") as server:
        yield server


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def server(request):
    return request.getfixturevalue(request.param)


SCHEMAS = "select count(*) from information_schema.schemata where schema_name like 'contend%'"


def sql(server, *arguments, status=0):
    done = subprocess.run([CONTEND, "sql", *arguments, "--url", server.url], capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{arguments}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "secret7" not in done.stdout + done.stderr
    return done


def levels(server, *arguments, status=0):
    result = json.loads(sql(server, *arguments, "--json", "-", status=status).stdout)["sql"]
    assert not result["partial"]
    return {level["level"]["name"]: level for level in result["levels"]}


def anomalies(level):
    worst = level["verified"]["worst"]
    return worst["class"] if worst else None


def test_levels_keep_their_promises_and_show_what_they_allow(server):
    of = levels(server, f"{ROOT}/workloads/bank.toml", "--isolation", "all", *SMALL, *HOT)
    assert all(level["verified"]["kept"] for level in of.values())
    assert anomalies(of["serializable"]) is None
    assert not of["serializable"]["measured"]["failed_invariants"]
    assert all(level["measured"]["commits"] > 0 for level in of.values())
    assert server.ask(SCHEMAS) == ["0"], "the tables are removed"


def test_a_file_with_scans_inserts_and_deletes_keeps_its_invariants(server):
    sizes = ["--set", "shop.items=20", "--set", "shop.customers=10"]
    of = levels(server, f"{ROOT}/workloads/shop.toml", "--isolation", "serializable", *SMALL, *sizes)["serializable"]
    assert of["verified"]["kept"] and anomalies(of) is None
    assert not of["measured"]["failed_invariants"] and not of["verified"]["failed_invariants"]
    assert sum(of["verified"]["aborts_by_reason"].values()) > 0, "so few rows conflict"


def table(server, status=0):
    result = json.loads(sql(server, "litmus", "--json", "-", status=status).stdout)[0]
    names = [level["name"] for level in result["levels"]]
    return {row["name"]: {name: outcome["shown"] for name, outcome in zip(names, row["outcomes"], strict=True)} for row in result["rows"]}


def shown(of, level):
    return {name.split()[0] + " " + name.split()[-1] for name, outcomes in of.items() if outcomes[level]}


SKEWS = {"G2-item skew", "G2 phantoms", "G2-item transaction"}
UPDATES = {"PMP read", "P4 update", "G-single skew", "G-single past"}


def test_anomalies_of_postgres(postgres):
    # As in Hermitage's table of PostgreSQL. A write that waits for a transaction that deletes a row and inserts it again finds none
    # (manual, 13.2.1), which is no read of a committed state.
    of = table(postgres, status=1)
    assert shown(of, "read-committed") == {"G1b again"} | UPDATES | SKEWS
    assert shown(of, "repeatable-read") == SKEWS
    assert shown(of, "serializable") == set()


def test_anomalies_of_mariadb(mariadb):
    of = table(mariadb)
    assert shown(of, "read-uncommitted") == {"G1a read", "G1b read", "G1c flow", "OTV vanishes"} | UPDATES | SKEWS
    assert shown(of, "read-committed") == UPDATES | SKEWS
    assert shown(of, "repeatable-read") == {"P4 update", "G-single past"} | SKEWS
    assert shown(of, "snapshot") == SKEWS
    assert shown(of, "serializable") == set()


def test_the_engine_runs_beside(postgres, tmp_path):
    out = tmp_path / "out"
    sql(postgres, f"{ROOT}/workloads/bank.toml", "--isolation", "serializable", "--beside", "silo,2pl-nowait", "--out", str(out), *SMALL, *HOT)
    written = json.loads((out / "results.json").read_text())
    # The faster one is the first, and that may be either.
    assert {entry["protocol"] for entry in written["beside"]["protocols"]} == {"silo", "2pl-nowait"}
    assert all("secret7" not in (out / file).read_text() for file in ["results.json", "report.html"])
    checked = subprocess.run([CONTEND, "check", out / "history-serializable.jsonl"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_bad_input_is_one_line(server):
    bank = f"{ROOT}/workloads/bank.toml"
    wrong = Server(server.url.replace("secret7", "secret8"), server.ask)
    for of, arguments, part in [
        (server, [bank, "--isolation", "strict"], "valid here: "),
        (server, ["bank"], "valid: the path of a workload file"),
        (server, [bank, "--clients", "0"], "1 to 1000"),
        (server, [bank, "--beside", "silver"], "silver"),
        (server, ["litmus", "--set", "bank.accounts=3"], "--set belongs to a workload file"),
        (wrong, [bank], "me"),
    ]:
        done = sql(of, *arguments, status=2)
        assert part in done.stderr and len(done.stderr.splitlines()) == 1 and "secret8" not in done.stderr, done.stderr
    assert server.ask(SCHEMAS) == ["0"]


def test_a_server_that_is_killed_ends_the_run_with_one_line(postgres):
    process = subprocess.Popen([CONTEND, "sql", f"{ROOT}/workloads/bank.toml", "--isolation", "serializable", "--seconds", "60", "--url", postgres.url],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while postgres.ask("select count(*) from pg_stat_activity where application_name = 'contend'") in (["0"], ["1"], ["2"]):
        assert process.poll() is None
    postgres.ask("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'contend'")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1 and len(error.splitlines()) == 1 and "secret7" not in error, error
    assert postgres.ask(SCHEMAS) == ["0"], "the tables are removed all the same"


def test_a_server_that_is_killed_at_a_later_level_takes_away_no_figures(postgres, tmp_path):
    process = subprocess.Popen([CONTEND, "sql", f"{ROOT}/workloads/bank.toml", "--isolation", "read-committed,serializable", "--out", tmp_path, *SMALL, "--url", postgres.url],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "history-read-committed.jsonl").exists():
        assert process.poll() is None
    while process.poll() is None:
        postgres.ask("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'contend' and query not like 'drop schema%'")
    text, error = process.communicate(timeout=60)
    assert process.returncode == 1 and len(error.splitlines()) == 1 and error.startswith("error: "), error
    assert "read-committed" in text and "PARTIAL: the run failed before its end." in text, text
    data = json.loads((tmp_path / "results.json").read_text())["sql"]
    assert data["levels"][0]["level"]["name"] == "read-committed" and data["partial"] and f"error: {data['error']}\n" == error
    assert "Partial: the run failed" in (tmp_path / "report.html").read_text()


def test_an_open_loop_counts_from_the_arrival(mariadb):
    def measured(rate):
        return levels(mariadb, f"{ROOT}/workloads/bank.toml", "--isolation", "read-committed", "--rate", rate, "--clients", "2", "--seconds", "2", "--verify-transactions", "100")["read-committed"]["measured"]

    easy, hard = measured("50"), measured("1M")
    assert 50 <= easy["open_loop"]["offered"] <= 160 and easy["open_loop"]["rate_tps"] == 50
    assert easy["commits"] + easy["cancelled"] + easy["open_loop"]["not_begun"] == easy["open_loop"]["offered"]
    assert hard["open_loop"]["saturated"] and hard["open_loop"]["offered"] > 1_000_000
    transfer = next(kind for kind in hard["kinds"] if kind["kind"] == "transfer")
    assert transfer["p99_us"] > 1_000_000, "the last ones were due two seconds ago"
    for bad in ["0", "-1", "1e12", "50k..400k", "x"]:
        assert len(sql(mariadb, f"{ROOT}/workloads/bank.toml", "--rate", bad, status=2).stderr.splitlines()) == 1


@pytest.mark.parametrize("is_durable", [True, False])
def test_what_a_crash_loses_is_found(is_durable, tmp_path):
    # Without its flushes the server acknowledges what it keeps in memory alone.
    options = ["--innodb-flush-log-at-trx-commit=1"] if is_durable else ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-log-at-timeout=2700"]
    with servers.mariadb_server(*options) as server:
        out = tmp_path / "out.json"
        process = subprocess.Popen([CONTEND, "sql", f"{ROOT}/workloads/bank.toml", "--isolation", "serializable", "--clients", "4", "--seconds", "0.1", "--verify-transactions",
                                    "20000", "--reconnect", "60s", "--json", out, "--url", server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        table = "select concat(table_schema, '.', table_name) from information_schema.columns where column_name = '_w' limit 1"
        while not (name := server.ask(table)) or server.ask(f"select max(_w) > 1e9 from {name[0]}") != ["1"]:
            assert process.poll() is None, process.communicate()
        server.kill()
        server.start()
        text, error = process.communicate(timeout=200)
        assert out.exists(), text + error
        [level] = json.loads(out.read_text())["sql"]["levels"]
        assert level["verified"]["aborts_by_reason"].get("connection lost", 0) + level["verified"]["unknown"] >= 4, "each client had to reconnect"
        losses = level["verified"]["losses"]
        if is_durable:
            assert losses["count"] == 0 and level["verified"]["kept"] and process.returncode == 0, text
        else:
            assert losses["count"] > 0 and losses["examples"] and process.returncode == 1, text
            assert " was committed, and its write is lost: account" in text
        assert server.ask(SCHEMAS) == ["0"]


def test_sqlite_needs_no_server(tmp_path):
    server = Server(f"sqlite:{tmp_path / 'mine.db'}", None)
    assert shown(table(server), "serializable") == set()
    of = levels(server, f"{ROOT}/workloads/bank.toml", *SMALL, *HOT)["serializable"]
    assert of["verified"]["kept"] and not of["verified"]["failed_invariants"]
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_no_table(postgres):
    process = subprocess.Popen([CONTEND, "sql", f"{ROOT}/workloads/bank.toml", "--seconds", "60", "--url", postgres.url], stdout=subprocess.PIPE, text=True)
    while postgres.ask(SCHEMAS) == ["0"]:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "PARTIAL" in out
    assert postgres.ask(SCHEMAS) == ["0"]
