"""Workload files on real servers: PostgreSQL and MariaDB, each started for the test in a folder of its own."""

import contextlib
import glob
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

CONTEND = os.environ["CONTEND"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SMALL = ["--clients", "4", "--seconds", "0.5", "--verify-transactions", "2000"]
HOT = ["--set", "bank.accounts=10"]


def program(name):
    """A program of a server: in the path, or where the distribution keeps it."""
    found = shutil.which(name) or next(iter(sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)), None) or shutil.which(name, path="/usr/sbin")
    assert found, f".ci/setup installs {name}"
    return found


def unprivileged():
    """Servers refuse to run as root: what starts a command as another user."""
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []


@contextlib.contextmanager
def own_folder():
    """A folder that the servers' user owns. Its path is short, as that of a socket has to be."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="contend-"))
    if os.getuid() == 0:
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    yield folder
    shutil.rmtree(folder)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(answers, process, log):
    for _ in range(600):
        if answers():
            return
        assert process.poll() is None, f"the server has ended: {log.read_text(errors='replace')[-2000:]}"
        time.sleep(0.1)
    raise AssertionError(f"the server does not answer: {log.read_text(errors='replace')[-2000:]}")


class Server:
    """A server on loopback: its URL, and a way to ask it."""

    def __init__(self, url, ask):
        self.url, self.ask = url, ask


@contextlib.contextmanager
def running(folder, command):
    """A server that runs as long as it is needed, and its log."""
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen([*unprivileged(), *command], stdout=out, stderr=out, cwd=folder)
    try:
        yield process, log
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def postgres():
    with own_folder() as folder:
        password, data, port = folder / "password", folder / "data", free_port()
        password.write_text("secret7")
        subprocess.run([*unprivileged(), program("initdb"), "-D", data, "-U", "me", "-A", "md5", f"--pwfile={password}", "-E", "UTF8", "--no-sync"],
                       check=True, capture_output=True, cwd=folder)
        settings = ["listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off"]
        command = [program("postgres"), "-D", data, "-p", str(port), *(word for setting in settings for word in ["-c", setting])]

        def ask(sql):
            done = subprocess.run([program("psql"), "-h", "127.0.0.1", "-p", str(port), "-U", "me", "-d", "postgres", "-tAc", sql],
                                  capture_output=True, text=True, env={**os.environ, "PGPASSWORD": "secret7"}, check=False)
            return done.stdout.split() if done.returncode == 0 else None

        with running(folder, command) as (process, log):
            wait_until(lambda: ask("select 1") == ["1"], process, log)
            yield Server(f"postgres://me:secret7@127.0.0.1:{port}/postgres", ask)


@pytest.fixture(scope="module")
def mariadb():
    with own_folder() as folder:
        data, port, plug = folder / "data", free_port(), folder / "socket"
        subprocess.run([*unprivileged(), program("mariadb-install-db"), "--no-defaults", f"--datadir={data}",
                        "--auth-root-authentication-method=normal", "--skip-test-db"], check=True, capture_output=True, cwd=folder)
        command = [program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--port={port}", f"--socket={plug}", "--bind-address=127.0.0.1",
                   f"--pid-file={folder / 'pid'}", "--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve"]

        def ask(sql):
            done = subprocess.run([program("mariadb"), "--no-defaults", f"--socket={plug}", "-u", "root", "-N", "-e", sql],
                                  capture_output=True, text=True, check=False)
            return done.stdout.split() if done.returncode == 0 else None

        with running(folder, command) as (process, log):
            wait_until(lambda: ask("select 1") == ["1"], process, log)
            user = "create user me@'127.0.0.1' identified by 'secret7'; grant all on *.* to me@'127.0.0.1'; create database mine"
            assert ask(user) is not None
            yield Server(f"mysql://me:secret7@127.0.0.1:{port}/mine", ask)


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


def table(server):
    result = json.loads(sql(server, "litmus", "--json", "-").stdout)[0]
    names = [level["name"] for level in result["levels"]]
    return {row["name"]: {name: outcome["shown"] for name, outcome in zip(names, row["outcomes"], strict=True)} for row in result["rows"]}


def shown(of, level):
    return {name.split()[0] + " " + name.split()[-1] for name, outcomes in of.items() if outcomes[level]}


SKEWS = {"G2-item skew", "G2 phantoms", "G2-item transaction"}
UPDATES = {"PMP read", "P4 update", "G-single skew", "G-single past"}


def test_anomalies_of_postgres(postgres):
    # As in Hermitage's table of PostgreSQL.
    of = table(postgres)
    assert shown(of, "read-committed") == UPDATES | SKEWS
    assert shown(of, "repeatable-read") == SKEWS
    assert shown(of, "serializable") == set()


def test_anomalies_of_mariadb(mariadb):
    of = table(mariadb)
    assert shown(of, "read-uncommitted") == {"G1a read", "G1b read", "G1c flow"} | UPDATES | SKEWS
    assert shown(of, "read-committed") == UPDATES | SKEWS
    assert shown(of, "repeatable-read") == {"P4 update", "G-single past"} | SKEWS
    assert shown(of, "snapshot") == SKEWS
    assert shown(of, "serializable") == set()


def test_the_engine_runs_beside(postgres, tmp_path):
    out = tmp_path / "out"
    sql(postgres, f"{ROOT}/workloads/bank.toml", "--isolation", "serializable", "--beside", "silo,2pl-nowait", "--out", str(out), *SMALL, *HOT)
    written = json.loads((out / "sql.json").read_text())
    assert [entry["protocol"] for entry in written["beside"]["protocols"]] == ["silo", "2pl-nowait"]
    assert "secret7" not in (out / "sql.json").read_text()
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
