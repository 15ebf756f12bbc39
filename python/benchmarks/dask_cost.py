#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What Dask costs per run, and how much faster two workers are than one. Leave the machine alone meanwhile.

    dask_cost.py [SHORT_RUNS [LONG_RUNS]]

Two cores need not be twice as fast as one: two processes without Dask show what there was to gain.
"""

import multiprocessing
import sys
import tempfile
import time

import evenkeel
from distributed import Client, LocalCluster

TEXT = """
schema = 2
name = "cost"
title = "Two machines"
duration_ms = 100
[network]
rate_mbit = 100
[vms.a]
[vms.b]
[workloads.w]
kind = "bulk"
from = "a"
to = "b"
"""


def by_dask(workers: int, scenario: evenkeel.Scenario) -> float:
    """Seconds of a sweep on `workers` workers that are there already."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        tempfile.TemporaryDirectory() as store,
    ):
        # Each worker has imported the package and knows how to run.
        evenkeel.sweep(scenario, client, f"{store}/first", repetitions=4 * workers)
        begun = time.perf_counter()
        evenkeel.sweep(scenario, client, f"{store}/all")
        return time.perf_counter() - begun


def alone(scenario: evenkeel.Scenario) -> float:
    """Seconds of the same runs one after the other in this process."""
    begun = time.perf_counter()
    for repetition in range(scenario.repetitions):
        evenkeel.simulate(scenario, repetition=repetition)
    return time.perf_counter() - begun


def by_processes(count: int, scenario: evenkeel.Scenario) -> float:
    """Seconds of the same runs in `count` processes that are there already, each with its part of them."""
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        part = scenario.set("repetitions", scenario.repetitions // count)
        pool.map(alone, [scenario.set("repetitions", 1)] * count, chunksize=1)
        begun = time.perf_counter()
        pool.map(alone, [part] * count, chunksize=1)
        return time.perf_counter() - begun


def main() -> None:
    short_runs, long_runs = (int(text) for text in (sys.argv[1:] + ["1000", "40"][len(sys.argv) - 1 :])[:2])
    scenario = evenkeel.Scenario.parse(TEXT)
    short = scenario.set("repetitions", short_runs)
    without, with_dask = alone(short), by_dask(1, short)
    print(f"{short_runs} runs of {1e3 * without / short_runs:.2f} ms, one worker: {with_dask:.2f} s, ", end="")
    print(f"{1e3 * (with_dask - without) / short_runs:.2f} ms of Dask's for each")
    long = scenario.set("repetitions", long_runs).set("duration_ms", 100_000)
    for name, seconds in (("plain processes", by_processes), ("workers of Dask", by_dask)):
        one, two = seconds(1, long), seconds(2, long)
        print(f"{long_runs} runs, {name}: {one:.2f} s by one, {two:.2f} s by two, {one / two:.2f} times as fast")


if __name__ == "__main__":
    main()
