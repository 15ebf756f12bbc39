# SPDX-License-Identifier: MIT OR Apache-2.0
"""`python -m evenkeel.sweep`: a sweep over the workers of Dask. Imported, it is the function `evenkeel.sweep`."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from evenkeel._native import Scenario
from evenkeel._sweep import sweep
from evenkeel.errors import ResultsError, ScenarioError, SweepError


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m evenkeel.sweep",
        description="Runs every cell of a scenario in the simulator, on the workers of a Dask cluster. "
        "After a kill the same command goes on with the rest.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the scenario file")
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="of Dask, as tcp://host:8786 [default: threads of this process]"
    )
    parser.add_argument(
        "--store", metavar="PLACE", help="a directory or fsspec URL for the results [default: results/sim/NAME]"
    )
    parser.add_argument("--only", metavar="AXIS=LABEL", action="append", default=[], help="only cells with this label")
    parser.add_argument("--repetitions", metavar="N", type=int, help="instead of what the scenario says")
    parser.add_argument("--format", choices=["jsonl", "parquet"], default="jsonl", help="of the result files")
    parser.add_argument("--restart", action="store_true", help="begin again, whatever the store holds")
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress")
    return parser.parse_args()


def _show(finished: int, runs: int) -> None:
    print(f"\r{finished} of {runs} runs", end="\n" if finished == runs else "", file=sys.stderr, flush=True)


def _main() -> int:
    given = _arguments()
    with ExitStack() as open_until_done:
        try:
            scenario = Scenario.load(given.file)
            client = None
            if given.scheduler is not None:
                from distributed import Client

                client = open_until_done.enter_context(Client(given.scheduler))
            results = sweep(
                scenario,
                client,
                given.store,
                only=given.only,
                repetitions=given.repetitions,
                restart=given.restart,
                format=given.format,
                progress=None if given.quiet else _show,
            )
        except (OSError, ResultsError, ScenarioError, SweepError, ModuleNotFoundError) as error:
            print("\n".join(f"error: {line}" for line in str(error).splitlines()), file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("error: interrupted; the same command goes on with the rest", file=sys.stderr)
            return 130
    print(f"{len(results)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
else:
    # The import system binds what stands here: `import evenkeel.sweep` leaves the function in its place.
    sys.modules[__name__] = sweep  # type: ignore[assignment]
