# SPDX-License-Identifier: MIT OR Apache-2.0
import gc
from collections.abc import Callable
from pathlib import Path

import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

from evenkeel import Results, ResultsError, Scenario, simulate

TABLES = ["runs", "counters", "flows", "series", "packets", "remarks"]


def test_both_formats_are_read_as_the_same(of_program: Callable[..., Path]) -> None:
    lines = Results.load(of_program())
    tables = Results.load(of_program("--format", "parquet"))
    assert len(lines) == len(tables) == 16
    assert lines.to_jsonl() == tables.to_jsonl()
    assert lines.meta["engine"] == "sim" and lines.meta["schema"] == 1
    assert lines.scenario.name == "small"
    # The program and the package agree on the code and on the settings.
    own, theirs = simulate(lines.scenario, 0).meta["provenance"], lines.meta["provenance"]
    assert own["program"]["code"] == theirs["program"]["code"]
    assert (own["settings"], own["host"]) == (theirs["settings"], theirs["host"])


def test_tables_are_those_of_the_parquet_files(of_program: Callable[..., Path]) -> None:
    directory = of_program("--format", "parquet")
    results = Results.load(directory)
    for name in TABLES:
        table = pyarrow.table(getattr(results, name))
        of_file = pyarrow.parquet.read_table(directory / f"{name}.parquet")
        assert table.equals(of_file), name
        assert getattr(results, name).num_rows == len(getattr(results, name)) == of_file.num_rows
        assert getattr(results, name).column_names == of_file.column_names


def test_pandas_polars_and_pyarrow_take_them(scenario: Scenario) -> None:
    results = simulate(scenario, 0)
    flows = results.series
    assert flows.num_rows > 10
    rows = flows.to_pyarrow().to_pylist()
    assert polars.DataFrame(flows).to_dicts() == flows.to_polars().to_dicts() == rows
    frame = flows.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame.to_dict("records") == rows
    assert repr(results.remarks) == "Table(0 rows: run, remark)"


def test_nothing_is_copied_and_the_data_outlives_the_results(scenario: Scenario) -> None:
    results = simulate(scenario, 0)
    first, second = pyarrow.table(results.series), pyarrow.table(results.series)
    for name in results.series.column_names:
        for one, other in zip(first[name].chunks, second[name].chunks, strict=True):
            addresses = [[b and b.address for b in array.buffers()] for array in (one, other)]
            assert addresses[0] == addresses[1] and any(addresses[0])
    rows = first.to_pylist()
    del results, second
    gc.collect()
    assert first.to_pylist() == rows
    assert first["value"].null_count == 0


def test_results_are_put_together_and_written(
    scenario: Scenario, tmp_path: Path, of_program: Callable[..., Path]
) -> None:
    both = Results.concat([simulate(scenario, cell) for cell in scenario.cells()])
    assert len(both) == 8 and both.runs.to_pandas()["axis.cc"].nunique() == 2
    both.save(tmp_path / "lines")
    both.save(tmp_path / "tables", "parquet")
    of_program("--repetitions", "1")
    wanted = (tmp_path / "of-program" / "runs.jsonl").read_bytes()
    assert (tmp_path / "lines" / "runs.jsonl").read_bytes() == wanted
    assert Results.load(tmp_path / "tables").to_jsonl() == wanted
    with pytest.raises(ValueError, match="'jsonl' or 'parquet'"):
        both.save(tmp_path / "other", "csv")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="several scenarios"):
        Results.concat([both, simulate(scenario.set("seed", 3), 0)])
    with pytest.raises(ValueError, match="no results"):
        Results.concat([])


def test_damaged_results_are_named(tmp_path: Path, of_program: Callable[..., Path]) -> None:
    with pytest.raises(FileNotFoundError):
        Results.load(tmp_path / "none")
    directory = of_program("--format", "parquet")
    file = directory / "flows.parquet"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ResultsError, match="flows.parquet is damaged") as caught:
        Results.load(directory)
    assert Path(str(caught.value.file)) == file
    lines = of_program("--format", "jsonl")
    (lines / "runs.jsonl").write_text("{}\n{}\n")
    with pytest.raises(ResultsError, match=r"runs.jsonl:1: "):
        Results.load(lines)
