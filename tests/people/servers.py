"""Servers of databases, each started in a folder of its own, on loopback and as an unprivileged user."""

import contextlib
import glob
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
import time


def program(name):
    """A program of a server: in the path, or where the distribution keeps it."""
    found = shutil.which(name) or next(iter(sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)), None) or shutil.which(name, path="/usr/sbin")
    assert found, f".ci/setup installs {name}"
    return found


def library(name):
    """A library of a server."""
    found = next(iter(glob.glob(f"/usr/lib*/galera*/{name}") + glob.glob(f"/usr/lib/*/galera*/{name}")), None)
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


@contextlib.contextmanager
def postgres_server():
    with own_folder() as folder:
        password, data, port = folder / "password", folder / "data", free_port()
        password.write_text("secret7")
        subprocess.run([*unprivileged(), program("initdb"), "-D", data, "-U", "me", "-A", "md5", f"--pwfile={password}", "-E", "UTF8", "--no-sync"],
                       check=True, capture_output=True, cwd=folder)
        settings = ["listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off", "deadlock_timeout=10ms"]
        command = [program("postgres"), "-D", data, "-p", str(port), *(word for setting in settings for word in ["-c", setting])]

        def ask(sql):
            done = subprocess.run([program("psql"), "-h", "127.0.0.1", "-p", str(port), "-U", "me", "-d", "postgres", "-tAc", sql],
                                  capture_output=True, text=True, env={**os.environ, "PGPASSWORD": "secret7"}, check=False)
            return done.stdout.split() if done.returncode == 0 else None

        with running(folder, command) as (process, log):
            wait_until(lambda: ask("select 1") == ["1"], process, log)
            yield Server(f"postgres://me:secret7@127.0.0.1:{port}/postgres", ask)


class MariaDb:
    """A server of MariaDB that can be started, killed and started again."""

    def __init__(self, folder, *options):
        self.folder, self.port, self.plug, self.log = folder, free_port(), folder / "socket", folder / "log"
        data = folder / "data"
        subprocess.run([*unprivileged(), program("mariadb-install-db"), "--no-defaults", f"--datadir={data}",
                        "--auth-root-authentication-method=normal", "--skip-test-db"], check=True, capture_output=True, cwd=folder)
        self.command = [program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--port={self.port}", f"--socket={self.plug}", "--bind-address=127.0.0.1",
                        f"--pid-file={folder / 'pid'}", "--skip-name-resolve", "--innodb-buffer-pool-size=64M", *options]
        self.process = None

    def start(self, *options, answer=("1",), question="select 1"):
        with self.log.open("a") as out:
            # Scripts of a cluster look for their programs in the path.
            path = os.pathsep.join([*os.get_exec_path(), "/usr/sbin"])
            self.process = subprocess.Popen([*unprivileged(), *self.command, *options], stdout=out, stderr=out, cwd=self.folder, env={**os.environ, "PATH": path})
        wait_until(lambda: self.ask(question) == list(answer), self.process, self.log)

    def kill(self):
        """Ends it as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    def ask(self, sql):
        done = subprocess.run([program("mariadb"), "--no-defaults", f"--socket={self.plug}", "-u", "root", "-N", "-e", sql],
                              capture_output=True, text=True, check=False)
        return done.stdout.split() if done.returncode == 0 else None

    def add_user(self):
        user = "create user me@'127.0.0.1' identified by 'secret7'; grant all on *.* to me@'127.0.0.1'; create database mine"
        assert self.ask(user) is not None


@contextlib.contextmanager
def mariadb_server(*options):
    """A server, the URL of which is that of a database `mine`."""
    with own_folder() as folder:
        server = MariaDb(folder, *options)
        try:
            server.start()
            server.add_user()
            server.url = f"mysql://me:secret7@127.0.0.1:{server.port}/mine"
            yield server
        finally:
            server.stop()


class Cluster:
    """Three nodes of Galera."""

    def __init__(self, folder):
        self.nodes, self.places = [], [[free_port() for _ in range(3)] for _ in range(3)]
        for number, (group, increment, transfer) in enumerate(self.places):
            own = folder / str(number)
            subprocess.run([*unprivileged(), "mkdir", own], check=True)
            self.nodes.append(MariaDb(
                own, "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--innodb-flush-log-at-trx-commit=0", "--wsrep-on=1",
                f"--wsrep-provider={library('libgalera_smm.so')}", "--wsrep-cluster-name=contend", f"--wsrep-node-name=node{number}",
                f"--wsrep-node-address=127.0.0.1:{group}", "--wsrep-sst-method=rsync", f"--wsrep-sst-receive-address=127.0.0.1:{transfer}",
                f"--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{increment};gcache.size=32M"))

    def start(self, number, first=False):
        """Starts a node: the first of all makes the cluster, others join it."""
        members = "" if first else ",".join(f"127.0.0.1:{group}" for group, _, _ in self.places)
        self.nodes[number].start(f"--wsrep-cluster-address=gcomm://{members}", answer=("wsrep_ready", "ON"), question="show status like 'wsrep_ready'")

    def ask(self, sql):
        return self.nodes[0].ask(sql)


@contextlib.contextmanager
def galera_cluster():
    """A cluster, whose URL names all nodes."""
    with own_folder() as folder:
        cluster = Cluster(folder)
        try:
            for number in range(3):
                cluster.start(number, first=number == 0)
            cluster.nodes[0].add_user()
            cluster.url = f"mysql://me:secret7@{','.join(f'127.0.0.1:{node.port}' for node in cluster.nodes)}/mine"
            yield cluster
        finally:
            for node in cluster.nodes:
                node.stop()
