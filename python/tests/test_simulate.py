# SPDX-License-Identifier: MIT OR Apache-2.0
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evenkeel
from conftest import TEXT
from evenkeel import Scenario, ScenarioError, simulate


def test_the_bytes_are_those_of_the_program(scenario: Scenario, of_program: Callable[..., Path]) -> None:
    directory = of_program()
    runs = [(repetition, cell) for repetition in range(2) for cell in scenario.cells()]
    lines = [simulate(scenario, cell, repetition=repetition).to_jsonl() for repetition, cell in runs]
    assert b"".join(lines) == (directory / "runs.jsonl").read_bytes()


def test_a_cell_is_itself_its_number_or_its_labels(scenario: Scenario) -> None:
    by_cell = simulate(scenario, scenario.cells()[3]).to_jsonl()
    assert simulate(scenario, 3).to_jsonl() == by_cell
    assert simulate(scenario, {"rate": 20, "cc": "cubic"}).to_jsonl() == by_cell
    cells: list[tuple[Any, str]] = [
        (8, "8 cells, counted from 0"),
        (-1, "counted from 0"),
        ({"rate": 20}, "2 cells have these labels"),
        ({"rate": 21}, "axis `rate` has no label `21`"),
        ({"colour": "red"}, "no axis is called `colour`"),
        (scenario.set("seed", 9).cells()[0], "another scenario's"),
    ]
    for cell, why in cells:
        with pytest.raises((ValueError, KeyError), match=why):
            simulate(scenario, cell)
    for bad in (None, "rate=20"):
        with pytest.raises(TypeError):
            simulate(scenario, bad)  # type: ignore[arg-type]
    assert len(simulate(scenario.set("axes", None))) == 1


def test_a_seed_stands_in_the_place_of_the_scenarios(scenario: Scenario, of_program: Callable[..., Path]) -> None:
    seeded = TEXT.replace("schema = 2", "schema = 2\nseed = 77")
    directory = of_program("--only", "rate=20", "--only", "cc=reno", text=seeded)
    wanted = (directory / "runs.jsonl").read_bytes()
    runs = [simulate(scenario, 2, 77, repetition=repetition) for repetition in range(2)]
    assert b"".join(run.to_jsonl() for run in runs) == wanted
    assert runs[0].scenario.seed == 77


def test_what_the_simulator_cannot_honour_is_an_error() -> None:
    scenario = Scenario.parse(TEXT, "s.toml").set("vms.a.vcpus", 2)
    with pytest.raises(ScenarioError) as caught:
        simulate(scenario, 0)
    assert (caught.value.file, caught.value.key, caught.value.line) == ("s.toml", "vms.a.vcpus", 9)


def test_other_threads_run_meanwhile(scenario: Scenario) -> None:
    long = scenario.set("duration_ms", 600_000)
    done = threading.Event()
    counts = 0

    def count() -> None:
        nonlocal counts
        while not done.is_set():
            counts += 1
            time.sleep(0.0001)

    counter = threading.Thread(target=count)
    counter.start()
    before = counts
    simulate(long, 7)
    during = counts - before
    done.set()
    counter.join()
    # With the lock held it could not have counted at all.
    assert during > 10


LONG = f"""
import evenkeel
scenario = evenkeel.Scenario.parse({TEXT!r}).set("axes", None)
scenario = scenario.set("duration_ms", 3_600_000).set("network.rate_mbit", 10_000).set("record", None)
print("begun", flush=True)
try:
    evenkeel.simulate(scenario)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_long_simulation() -> None:
    with subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(60) == 0


def test_the_version_is_the_programs(program: str) -> None:
    said = subprocess.run([program, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert said.split()[:2] == ["evenkeel", evenkeel.__version__]
