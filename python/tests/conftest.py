# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tests share: a scenario whose runs take milliseconds, and the program that results are held against."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import evenkeel

TEXT = """\
schema = 2
name = "small"
title = "Two machines"
duration_ms = 100
repetitions = 2
[network]
rate_mbit = 100
[vms.a]
[vms.b]
[workloads.w]
kind = "bulk"
from = "a"
to = "b"
[record]
tcp_info_period_ms = 10
[[axes]]
name = "rate"
key = "network.rate_mbit"
values = [10, 20, 30, 40]
[[axes]]
name = "cc"
key = "vms.a.tcp.congestion_control"
values = ["reno", "cubic"]
[report]
columns = ["goodput_mbit", "timeouts"]
"""


@pytest.fixture
def scenario() -> evenkeel.Scenario:
    return evenkeel.Scenario.parse(TEXT, "small.toml")


@pytest.fixture(scope="session")
def program() -> str:
    """The command line, of the same version."""
    return os.environ["EVENKEEL"]


@pytest.fixture
def of_program(program: str, tmp_path: Path) -> Callable[..., Path]:
    """Runs `evenkeel sim` with arguments and gives the directory of its results."""

    def run(*arguments: str, text: str = TEXT) -> Path:
        directory = tmp_path / "of-program"
        (tmp_path / "s.toml").write_text(text)
        command = [program, "sim", str(tmp_path / "s.toml"), "--out", str(directory), "--quiet", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return directory

    return run
