# SPDX-License-Identifier: MIT OR Apache-2.0
"""What pickles call."""

from evenkeel._native import Cell, Scenario


def cell(scenario: Scenario, number: int) -> Cell:
    """The cell of a scenario with this number."""
    return scenario.cells()[number]
