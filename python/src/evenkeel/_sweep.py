# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sweeps over the workers of Dask: one run is one task."""

import functools
import importlib.metadata
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from evenkeel._native import Plan, Results, Scenario, __code__, __version__
from evenkeel._store import SWEEP_FILE, Store, file_of, open_store, run_of
from evenkeel.errors import ResultsError, SweepError, VersionError

if TYPE_CHECKING:
    from distributed import Client

Progress = Callable[[int, int], None]

BUILD = f"{__version__} (code {__code__})"
"""Version, and digest of the sources that decide what a run gives: between releases, versions are the same."""


def sweep(
    scenario: Scenario,
    client: "Client | None" = None,
    store: str | os.PathLike[str] | None = None,
    *,
    only: Sequence[str] = (),
    repetitions: int | None = None,
    restart: bool = False,
    format: Literal["jsonl", "parquet"] = "jsonl",
    progress: Progress | None = None,
) -> Results:
    """Runs every cell of a scenario, each as often as it says, on the workers of a Dask cluster.

    Without a `client` they run in this process, on a thread per core. `store` is a directory or an fsspec URL, by
    default the directory of `evenkeel sweep`. Each run is kept there as it comes, so after the death of the client,
    the scheduler or a worker the same call goes on with what is missing; `restart` begins again. `only` keeps cells
    (`"AXIS=LABEL"`), `repetitions` stands in the place of the scenario's number. `progress` is called with the number
    of finished runs and of all.

    The results are those of `evenkeel sim`, to the byte. Raises `VersionError` for a worker of another version,
    `SweepError` for a sweep that ended early, and `ResultsError` for a store that holds another sweep or is in use.
    """
    wanted = _Wanted(scenario.text, os.fspath(scenario.file), tuple(only), repetitions)
    # The plan is the workers' own where they are threads of this process, so that it can be stopped.
    plan = _planned(wanted)
    with open_store(plan.default_directory if store is None else store) as opened:
        begun, finished = _begin(opened, plan, restart)
        if finished is None:
            return opened.load()
        missing = [index for index in range(len(plan)) if index not in finished]
        if missing:
            with _connected(client) as connected:
                _run_all(connected, wanted, missing, opened, progress)
        lines = [_line(opened, plan, index) for index in range(len(plan))]
        return opened.finish(plan, begun, lines, format)


@dataclass(frozen=True)
class _Wanted:
    """What a worker must know to do any run of a sweep."""

    text: str
    file: str
    only: tuple[str, ...]
    repetitions: int | None


@functools.lru_cache(maxsize=4)
def _planned(wanted: _Wanted) -> Plan:
    """The plan, kept: a scenario of many cells takes longer to expand than a short run takes."""
    return Plan(Scenario.parse(wanted.text, wanted.file), list(wanted.only), wanted.repetitions)


def build() -> str:
    """What is installed here."""
    return BUILD


def _task(index: int, wanted: _Wanted, of: str) -> bytes:
    """One run, on a worker."""
    if of != BUILD:
        # A worker that has come since all were asked.
        from distributed import get_worker

        address = get_worker().address
        raise VersionError(_other_version(address, BUILD, of), {address: BUILD})
    return _planned(wanted).simulate(index)


def _begin(store: Store, plan: Plan, restart: bool) -> tuple[bytes, set[int] | None]:
    """The `sweep.json` of the store and the runs that are there; None for them if all are, and results in place."""
    present = None if restart else store.read(SWEEP_FILE)
    if present is None:
        store.forget()
        begun = plan.begun()
        store.write(SWEEP_FILE, begun)
        return begun, set()
    differs = plan.differs(present)
    if differs is not None:
        where = store.where()
        why = f"{where} holds the runs of another sweep: {differs}; restart=True begins again and removes them"
        raise ResultsError(why, where)
    if store.is_complete():
        return present, None
    finished = set()
    for name in store.unfinished():
        index = run_of(name)
        if index is not None and index < len(plan) and plan.is_run(index, store.read(name) or b""):
            finished.add(index)
    return present, finished


def _line(store: Store, plan: Plan, index: int) -> bytes:
    line = store.read(file_of(index))
    if line is None or not plan.is_run(index, line):
        where = store.where()
        raise ResultsError(f"{where}: {file_of(index)} has gone or is damaged; the same call runs it again", where)
    return line


@contextmanager
def _connected(client: "Client | None") -> "Iterator[Client]":
    if client is not None:
        yield client
        return
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError as missing:
        raise SweepError("dask.distributed is not installed: pip install 'evenkeel[sweep]'") from missing
    # Threads, since the simulator lets go of the interpreter's lock: no script has to be safe to import for them.
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=os.cpu_count() or 1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as own,
    ):
        yield own


def _run_all(
    client: "Client", wanted: _Wanted, missing: list[int], store: Store, progress: Progress | None
) -> None:
    from distributed import CancelledError, as_completed

    _check_versions(client)
    plan = _planned(wanted)
    futures = client.map(_task, missing, wanted=wanted, of=BUILD, key=_keys(missing), pure=False)
    index_of = {future.key: index for index, future in zip(missing, futures, strict=True)}
    coming = as_completed(futures, with_results=True, raise_errors=False)
    # A run's bytes leave the cluster with its future.
    del futures
    finished = len(plan) - len(missing)
    try:
        for future, outcome in coming:
            index = index_of[future.key]
            if future.status != "finished" or not isinstance(outcome, bytes):
                raise _failure(client, plan.name(index), outcome)
            store.write(file_of(index), outcome)
            finished += 1
            if progress is not None:
                progress(finished, len(plan))
    except (CancelledError, OSError) as error:
        if isinstance(error, OSError) and client.status == "running":
            raise
        raise SweepError(_kept("the scheduler has gone", finished, len(plan), store)) from error
    except BaseException:
        # Runs on threads of this process would keep it from ending.
        plan.stop()
        _planned.cache_clear()
        raise


def _keys(missing: list[int]) -> list[str]:
    """Names of tasks, of this call alone: a scheduler may still have those of an earlier one."""
    call = os.urandom(8).hex()
    return [f"evenkeel-{call}-{index:06}" for index in missing]


def _kept(why: str, finished: int, runs: int, store: Store) -> str:
    return f"{why}; {finished} of {runs} runs are kept in {store.where()}: the same call goes on with the rest"


def _failure(client: "Client", run: str, outcome: Any) -> BaseException:
    error = outcome[1] if isinstance(outcome, tuple) else outcome
    if isinstance(error, VersionError) or not isinstance(error, BaseException):
        return error if isinstance(error, VersionError) else SweepError(f"{run}: no result came")
    if client.status == "running" and isinstance(error, ImportError | AttributeError):
        _check_versions(client)
    from distributed import CancelledError

    if isinstance(error, CancelledError):
        return error
    failure = SweepError(f"{run}: {error}")
    failure.__cause__ = error
    return failure


def _other_version(address: str, theirs: str | None, ours: str) -> str:
    has = "no evenkeel" if theirs is None else f"evenkeel {theirs}"
    return f"worker {address} has {has}, and this client {ours}: install the same on both"


def _check_versions(client: "Client") -> None:
    """Asks all workers: first what needs no evenkeel there."""
    answers = client.run(importlib.metadata.version, "evenkeel", on_error="return")
    versions = {address: answer if isinstance(answer, str) else None for address, answer in answers.items()}
    if all(version == __version__ for version in versions.values()):
        versions = client.run(build)
    others = {address: version for address, version in versions.items() if version not in (__version__, BUILD)}
    if others:
        raise VersionError("\n".join(_other_version(*other, BUILD) for other in others.items()), others)
