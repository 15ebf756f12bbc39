# SPDX-License-Identifier: MIT OR Apache-2.0
"""TCP between virtual machines, simulated.

`Scenario` is an experiment, `simulate` runs a cell of it in this process, `Results` are the tables that runs leave,
and `sweep` runs all of it over the workers of Dask. `ScenarioError` and `ResultsError` say what is wrong, and where.

>>> import evenkeel
>>> scenario = evenkeel.Scenario.parse('''
... schema = 2
... name = "two"
... title = "Two machines"
... duration_ms = 100
... [network]
... rate_mbit = 100
... [vms.a]
... [vms.b]
... [workloads.w]
... kind = "bulk"
... from = "a"
... to = "b"
... ''')
>>> results = evenkeel.simulate(scenario, seed=7)
>>> results
Results(sim, 1 runs)
>>> goodput = results.runs.to_pandas().goodput_mbit[0]  # Mbit/s
>>> bool(80 < goodput < 100)
True
"""

from evenkeel._native import Cell, Results, Scenario, Table, __version__, simulate
from evenkeel._sweep import sweep
from evenkeel.errors import Problem, ResultsError, ScenarioError, SweepError, VersionError

__all__ = [
    "Cell",
    "Problem",
    "Results",
    "ResultsError",
    "Scenario",
    "ScenarioError",
    "SweepError",
    "Table",
    "VersionError",
    "__version__",
    "simulate",
    "sweep",
]
