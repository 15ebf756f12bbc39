# SPDX-License-Identifier: MIT OR Apache-2.0
import pickle
from pathlib import Path

import numpy
import pytest

import evenkeel
from conftest import TEXT
from evenkeel import Scenario, ScenarioError


def test_a_file_and_its_text_are_the_same(tmp_path: Path, scenario: Scenario) -> None:
    file = tmp_path / "small.toml"
    file.write_text(TEXT)
    loaded = Scenario.load(file)
    assert loaded == scenario and hash(loaded) == hash(scenario)
    assert (loaded.file, loaded.text, loaded.name, loaded.title) == (file, TEXT, "small", "Two machines")
    assert (loaded.seed, loaded.repetitions) == (1, 2)
    assert loaded.axes == {"rate": ["10", "20", "30", "40"], "cc": ["reno", "cubic"]}


def test_cells_are_numbered_the_last_axis_fastest(scenario: Scenario) -> None:
    cells = scenario.cells()
    assert [cell.number for cell in cells] == list(range(8))
    assert cells[1].labels == {"rate": "10", "cc": "cubic"}
    assert repr(cells[1]) == "Cell(1, rate='10', cc='cubic')"
    assert [cell.number for cell in scenario.cells(["rate=20", "cc=cubic"])] == [3]
    with pytest.raises(ScenarioError, match="no axis is called `colour`; must be `rate` or `cc`"):
        scenario.cells(["colour=red"])


def test_set_gives_another_scenario(scenario: Scenario) -> None:
    changed = scenario.set("duration_ms", 200)
    assert scenario.text == TEXT
    assert changed.text == TEXT.replace("duration_ms = 100", "duration_ms = 200")
    assert changed != scenario
    assert "axes" not in scenario.set("axes", None).text
    assert len(scenario.set("axes", None).cells()) == 1
    rates = scenario.set("axes[0].values", [50, 60])
    assert rates.axes["rate"] == ["50", "60"]
    core = scenario.set("vms.a.core", {"vms_per_core": 3, "slice_ms": 30, "slice_jitter": 0.5})
    assert "vms_per_core = 3" in core.text
    assert "count = 3" in scenario.set("vms.a.count", numpy.int64(3)).text
    assert "hypervisor = false" in scenario.set("vms.a.hypervisor", False).text


def test_values_that_toml_does_not_know_are_refused(scenario: Scenario) -> None:
    with pytest.raises(TypeError, match="a bool, int, float, str, list or dict"):
        scenario.set("duration_ms", object())
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="nested too deeply"):
        scenario.set("axes[0].values", endless)


def test_errors_have_file_key_line_and_what_is_allowed(scenario: Scenario) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario.set("duration_ms", "long")
    error = caught.value
    assert (error.file, error.key, error.line) == ("small.toml", "duration_ms", 4)
    assert isinstance(error, ValueError) and len(error.problems) == 1
    with pytest.raises(ScenarioError) as caught:
        Scenario.parse(TEXT.replace("[vms.a]", '[vms.a.pvtcp]\nmode = "on"'), "other.toml")
    error = caught.value
    assert (error.file, error.key, error.line) == ("other.toml", "vms.a.pvtcp.mode", 9)
    assert error.allowed == ("off", "observe", "enforce")
    assert "Allowed: off, observe, enforce" in error.problems[0].message
    assert str(error).startswith("other.toml:9: vms.a.pvtcp.mode: ")
    with pytest.raises(ScenarioError) as caught:
        scenario.set("network.rate_mbit", -1).set("network.rate", 3)
    assert "whole number from" in caught.value.allowed[0]
    with pytest.raises(ScenarioError, match="did you mean `rate_mbit`") as caught:
        scenario.set("network.rate_mbits", 3)
    assert "rate_mbit" in caught.value.allowed
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.file, again.problems) == (str(caught.value), caught.value.file, caught.value.problems)


def test_all_that_is_wrong_is_in_one_error() -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario.parse('schema = 2\nname = "t"\nduration_ms = "long"\n', "t.toml")
    keys = [problem.key for problem in caught.value.problems]
    assert "title" in keys and "duration_ms" in keys


def test_a_file_that_is_not_there_is_no_scenario(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Scenario.load(tmp_path / "none.toml")
    assert Path(str(caught.value.filename)) == tmp_path / "none.toml"


def test_scenarios_and_cells_are_pickled(scenario: Scenario) -> None:
    again = pickle.loads(pickle.dumps(scenario))
    assert again == scenario and again.file == scenario.file
    cell = pickle.loads(pickle.dumps(scenario.cells()[5]))
    assert cell == scenario.cells()[5] and cell.labels == {"rate": "30", "cc": "cubic"}


def test_every_scenario_of_the_repository_is_read() -> None:
    files = sorted((Path(__file__).parents[2] / "scenarios").rglob("*.toml"))
    assert len(files) > 50
    for file in files[::10]:
        scenario = Scenario.load(file)
        assert evenkeel.Scenario.parse(scenario.text, file).cells()
