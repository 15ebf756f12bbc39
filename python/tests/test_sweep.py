# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sweeps over Dask give the same bytes, whatever process dies meanwhile."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from distributed import Client, LocalCluster

import evenkeel
from conftest import TEXT
from evenkeel import Results, ResultsError, Scenario, SweepError, VersionError
from evenkeel._sweep import BUILD

pytestmark = pytest.mark.filterwarnings("ignore")

# Runs of a fraction of a second, so that there is time to kill a process.
LONGER = TEXT.replace("duration_ms = 100", "duration_ms = 20000").replace("tcp_info_period_ms = 10", "")
# What the commands `dask scheduler` and `dask worker` do.
SCHEDULER = "from distributed.cli.dask_scheduler import main; main()"
WORKER = "from distributed.cli.dask_worker import main; main()"
DEADLINE_S = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as four:
        yield four


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as connected:
        yield connected


@pytest.fixture(scope="module")
def wanted(program: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The lines that the program leaves of `LONGER`."""
    folder = tmp_path_factory.mktemp("longer")
    (folder / "longer.toml").write_text(LONGER)
    command = [program, "sim", str(folder / "longer.toml"), "--out", str(folder / "out"), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return lines(folder / "out")


def lines(directory: Path) -> bytes:
    return (directory / "runs.jsonl").read_bytes()


def until(is_so: Callable[[], object]) -> None:
    """Waits for what is certain to come."""
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < DEADLINE_S, "it did not come"
        time.sleep(0.01)


def kept(directory: Path) -> int:
    folder = directory / "unfinished"
    return len(list(folder.glob("*.json"))) if folder.is_dir() else 0


def test_four_workers_give_the_bytes_of_the_program(
    client: Client, scenario: Scenario, of_program: Callable[..., Path], tmp_path: Path
) -> None:
    wanted = lines(of_program())
    told: list[tuple[int, int]] = []
    store = tmp_path / "dask"
    results = evenkeel.sweep(scenario, client, store, progress=lambda finished, runs: told.append((finished, runs)))
    assert results.to_jsonl() == lines(store) == wanted
    assert told == [(number, 16) for number in range(1, 17)]
    assert not (store / "unfinished").exists()
    assert Results.load(store).meta["command"] == "python -m evenkeel.sweep"
    # All is there already: nothing is run.
    again = evenkeel.sweep(scenario, client, store, progress=lambda *_: told.append((0, 0)))
    assert again.to_jsonl() == wanted and len(told) == 16


def test_without_a_client_threads_of_this_process_do_it(
    scenario: Scenario, of_program: Callable[..., Path], tmp_path: Path
) -> None:
    chosen = evenkeel.sweep(scenario, store=tmp_path / "own", only=["cc=reno"], repetitions=3, format="parquet")
    wanted = lines(of_program("--only", "cc=reno", "--repetitions", "3"))
    assert chosen.to_jsonl() == Results.load(tmp_path / "own").to_jsonl() == wanted
    assert (tmp_path / "own" / "runs.parquet").exists()


def test_an_object_store_has_the_same_files(
    client: Client, scenario: Scenario, of_program: Callable[..., Path], tmp_path: Path
) -> None:
    wanted = lines(of_program())
    url = f"memory://bucket/{tmp_path.name}"
    assert evenkeel.sweep(scenario, client, url).to_jsonl() == wanted
    system = fsspec.filesystem("memory")
    place = f"/bucket/{tmp_path.name}"
    assert system.cat_file(f"{place}/runs.jsonl") == wanted
    assert json.loads(system.cat_file(f"{place}/meta.json"))["engine"] == "sim"
    assert not system.find(f"{place}/unfinished")
    # A complete sweep is shown again; one that was cut short goes on.
    assert evenkeel.sweep(scenario, client, url).to_jsonl() == wanted
    system.rm_file(f"{place}/runs.jsonl")
    first = wanted.splitlines()[0]
    system.pipe_file(f"{place}/unfinished/000000.json", first)
    system.pipe_file(f"{place}/unfinished/000001.json", first)
    told: list[int] = []
    again = evenkeel.sweep(scenario, client, url, progress=lambda finished, _: told.append(finished))
    assert again.to_jsonl() == wanted and told == list(range(2, 17))
    with pytest.raises(ResultsError, match="the runs of another sweep: the scenario file has changed since"):
        evenkeel.sweep(scenario.set("seed", 3), client, url)
    other = evenkeel.sweep(scenario.set("seed", 3), client, url, restart=True)
    assert system.cat_file(f"{place}/runs.jsonl") == other.to_jsonl() != wanted


def test_a_file_url_is_a_directory(client: Client, scenario: Scenario, tmp_path: Path) -> None:
    evenkeel.sweep(scenario, client, f"file://{tmp_path}/there", only=["rate=10"])
    assert (tmp_path / "there" / ".lock").exists() and len(Results.load(tmp_path / "there")) == 4


def test_a_worker_that_is_killed_costs_nothing(client: Client, wanted: bytes, tmp_path: Path) -> None:
    store = tmp_path / "dask"
    killed: list[int] = []

    def kill_one(finished: int, _: int) -> None:
        if finished == 2:
            victim: int = next(iter(client.run(os.getpid).values()))
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    results = evenkeel.sweep(Scenario.parse(LONGER), client, store, progress=kill_one)
    assert len(killed) == 1 and results.to_jsonl() == lines(store) == wanted


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def address_in(file: Path) -> str | None:
    try:
        address: str = json.loads(file.read_text())["address"]
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return address


def test_client_worker_and_scheduler_are_killed_in_turn(client: Client, wanted: bytes, tmp_path: Path) -> None:
    store, file, place = tmp_path / "dask", tmp_path / "longer.toml", tmp_path / "scheduler.json"
    file.write_text(LONGER)
    where = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(place)]
    with running("-c", SCHEDULER, *where) as scheduler:
        until(lambda: address_in(place))
        address = address_in(place)
        assert address is not None
        worker = ["-c", WORKER, address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "5"]
        with running(*worker) as first, running(*worker), Client(address) as own:
            own.wait_for_workers(2)
            with running("-m", "evenkeel.sweep", str(file), "--scheduler", address, "--store", str(store)) as another:
                until(lambda: kept(store) >= 2 or another.poll() is not None)
                another.kill()
            assert another.returncode == -signal.SIGKILL
            of_the_killed = kept(store)
            assert 2 <= of_the_killed < 8
            told: list[int] = []

            def kill(finished: int, _: int) -> None:
                told.append(finished)
                if len(told) == 2:
                    first.kill()
                if len(told) == 5:
                    scheduler.kill()

            with pytest.raises(SweepError, match="the same call goes on with the rest"):
                evenkeel.sweep(Scenario.load(file), own, store, progress=kill)
            assert told[0] == of_the_killed + 1 and first.wait() == scheduler.wait() == -signal.SIGKILL
    assert of_the_killed + 5 <= kept(store) < 16
    results = evenkeel.sweep(Scenario.load(file), client, store)
    assert results.to_jsonl() == lines(store) == wanted


def test_the_program_goes_on_with_what_dask_has_begun(
    program: str, client: Client, wanted: bytes, tmp_path: Path
) -> None:
    store, file = tmp_path / "both", tmp_path / "longer.toml"
    file.write_text(LONGER)

    class Enough(Exception):
        pass

    def stop(finished: int, _: int) -> None:
        if finished == 3:
            raise Enough

    with pytest.raises(Enough):
        evenkeel.sweep(Scenario.load(file), client, store, progress=stop)
    assert kept(store) == 3
    command = [program, "sweep", str(file), "--out", str(store), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert lines(store) == wanted


def test_two_sweeps_in_one_directory_exclude_each_other(client: Client, scenario: Scenario, tmp_path: Path) -> None:
    refused: list[str] = []

    def another(finished: int, _: int) -> None:
        if finished == 1:
            with pytest.raises(ResultsError, match="is in use") as caught:
                evenkeel.sweep(scenario, client, tmp_path / "store")
            refused.append(str(caught.value.file))

    evenkeel.sweep(scenario, client, tmp_path / "store", progress=another)
    assert refused == [str(tmp_path / "store")]


def test_damaged_runs_are_run_again(client: Client, scenario: Scenario, tmp_path: Path) -> None:
    store = tmp_path / "store"
    wanted = evenkeel.sweep(scenario, client, store).to_jsonl()
    first, second = wanted.splitlines()[:2]
    folder = store / "unfinished"
    folder.mkdir()
    for name, data in [("000000.json", first), ("000001.json", second[:-1]), ("000002.json", first), ("7.json", first)]:
        (folder / name).write_bytes(data)
    told: list[int] = []
    again = evenkeel.sweep(scenario, client, store, progress=lambda finished, _: told.append(finished))
    assert told[0] == 2 and again.to_jsonl() == lines(store) == wanted


def test_another_version_on_a_worker_is_an_error_that_names_it(
    client: Client, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = set(client.scheduler_info(n_workers=-1)["workers"])
    address = next(iter(workers))
    with monkeypatch.context() as other:
        other.setattr("evenkeel._sweep.__version__", "9.9.9")
        other.setattr("evenkeel._sweep.BUILD", "9.9.9 (code 0)")
        with pytest.raises(VersionError) as caught:
            evenkeel.sweep(scenario, client, tmp_path / "store")
        assert set(caught.value.workers) == workers and set(caught.value.workers.values()) == {evenkeel.__version__}
        said = f"worker {address} has evenkeel {evenkeel.__version__}, and this client 9.9.9 (code 0): "
        assert said in str(caught.value)
    # Of the same version but of other code, as between releases.
    theirs = BUILD
    assert theirs.startswith(f"{evenkeel.__version__} (code ")
    monkeypatch.setattr("evenkeel._sweep.BUILD", "of other code")
    with pytest.raises(VersionError) as caught:
        evenkeel.sweep(scenario, client, tmp_path / "store")
    assert caught.value.workers == dict.fromkeys(workers, theirs)
    # As if the worker had come since.
    monkeypatch.setattr("evenkeel._sweep._check_versions", lambda _: None)
    with pytest.raises(VersionError, match="and this client of other code") as caught:
        evenkeel.sweep(scenario, client, tmp_path / "store")
    assert set(caught.value.workers) <= workers and set(caught.value.workers.values()) == {theirs}


def test_a_worker_without_evenkeel_is_named(client: Client, scenario: Scenario, tmp_path: Path) -> None:
    class Without:
        """A client whose workers answer as those without the package do."""

        def run(self, *_: object, **__: object) -> dict[str, Any]:
            return {"tcp://127.0.0.1:9": ModuleNotFoundError("evenkeel")}

    with pytest.raises(VersionError, match="worker tcp://127.0.0.1:9 has no evenkeel"):
        evenkeel.sweep(scenario, Without(), tmp_path / "store")  # type: ignore[arg-type]


def test_what_cannot_be_run_is_refused_before_anything_begins(
    client: Client, scenario: Scenario, tmp_path: Path
) -> None:
    with pytest.raises(evenkeel.ScenarioError, match="vms.a.vcpus"):
        evenkeel.sweep(scenario.set("vms.a.vcpus", 2), client, tmp_path / "store")
    with pytest.raises(ValueError, match="from 1 to 1000"):
        evenkeel.sweep(scenario, client, tmp_path / "store", repetitions=0)
    assert not (tmp_path / "store").exists()


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    store, file = tmp_path / "own", tmp_path / "long.toml"
    long = TEXT.replace("duration_ms = 100", "duration_ms = 100000").replace("tcp_info_period_ms = 10", "")
    file.write_text(long)
    command = [sys.executable, "-m", "evenkeel.sweep", str(file), "--store", str(store)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: kept(store) >= 1 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130 and "the same command goes on with the rest" in said
    assert 1 <= kept(store) < 16


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(TEXT.replace("duration_ms = 100", "duration_ms = -1"))
    command = [sys.executable, "-m", "evenkeel.sweep", str(file)]
    done = subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {file}:4: duration_ms: must be a whole number from")


def test_the_module_is_the_function() -> None:
    code = "import evenkeel.sweep; assert evenkeel.sweep.__name__ == 'sweep' and callable(evenkeel.sweep)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
