# SPDX-License-Identifier: MIT OR Apache-2.0
"""Examples of docstrings and of docs/python.md, types, and notebooks."""

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evenkeel

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["evenkeel", "evenkeel.errors", "evenkeel._native", "evenkeel._sweep"])
def test_examples_of_docstrings(name: str) -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    module = importlib.import_module(name)
    # The finder must be told that Rust's classes are this module's.
    objects = [module] if name != "evenkeel._native" else [getattr(module, word) for word in ("Scenario", "Results")]
    runner = doctest.DocTestRunner()
    for found in objects:
        for test in finder.find(found, globs={}):
            runner.run(test)
    assert runner.summarize().failed == 0


def test_there_are_examples_and_every_public_name_is_described() -> None:
    tests = doctest.DocTestFinder().find(evenkeel.Scenario, globs={})
    assert sum(len(test.examples) for test in tests) >= 3
    for name in evenkeel.__all__:
        if name == "__version__":
            continue
        public = getattr(evenkeel, name)
        assert public.__doc__, name
        for word in vars(public) if isinstance(public, type) else ():
            if not word.startswith("_") and not isinstance(vars(public)[word], str):
                assert getattr(public, word).__doc__, f"{name}.{word}"


def test_stubs_say_what_the_module_has() -> None:
    environment = {**os.environ, "MYPYPATH": "", "FORCE_COLOR": "0"}
    options = ["--mypy-config-file", str(TOP / "python/pyproject.toml")]
    command = [sys.executable, "-m", "mypy.stubtest", "evenkeel._native", *options]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def test_types() -> None:
    files = sorted(file for folder in ("tests", "benchmarks") for file in (TOP / "python" / folder).glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "src/evenkeel", *map(str, files)]
    done = subprocess.run(command, cwd=TOP / "python", stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout


def blocks_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (TOP / page).read_text(), re.S)


def test_the_first_lines_of_the_manual_make_a_plot(tmp_path: Path) -> None:
    first = blocks_of("docs/python.md")[0]
    assert len(first.strip().splitlines()) <= 5
    environment = {**os.environ, "MPLBACKEND": "agg"}
    place = tmp_path / "scenarios"
    place.symlink_to(TOP / "scenarios")
    subprocess.run([sys.executable, "-W", "error", "-c", first], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "goodput.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("notebook", sorted((TOP / "python/notebooks").glob("*.ipynb")), ids=lambda file: file.stem)
def test_notebooks_run(notebook: Path) -> None:
    import nbclient
    import nbformat

    node = nbformat.read(notebook, as_version=4)
    assert all(not cell.get("outputs") for cell in node.cells), "outputs are not kept in the repository"
    resources = {"metadata": {"path": str(notebook.parent)}}
    nbclient.NotebookClient(node, timeout=120, resources=resources).execute()
