# SPDX-License-Identifier: MIT OR Apache-2.0
"""Exceptions, with what they know as attributes."""

import os
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a scenario."""

    line: int | None
    """Line of the key, from 1; None for what is missing in the whole file."""
    key: str
    """Dotted key, as `vms.sender.count` or `axes[0].values[1]`; empty for the file as a whole."""
    message: str
    """What is wrong, and what is allowed."""
    allowed: tuple[str, ...]
    """The words or keys that are allowed there, or one sentence on a range or a form; may be empty."""


class ScenarioError(ValueError):
    """A scenario that is not valid, or that the simulator cannot honour.

    `problems` has all that is wrong; `line`, `key` and `allowed` are those of the first.

    >>> import evenkeel
    >>> text = '''
    ... schema = 2
    ... name = "t"
    ... title = "t"
    ... duration_ms = -5
    ... [vms.a]
    ... [vms.b]
    ... [workloads.w]
    ... kind = "ping"
    ... from = "a"
    ... to = "b"
    ... '''
    >>> try:
    ...     evenkeel.Scenario.parse(text, file="t.toml")
    ... except evenkeel.ScenarioError as error:
    ...     problem = error
    >>> problem.file, problem.line, problem.key
    ('t.toml', 5, 'duration_ms')
    >>> problem.allowed
    ('a whole number from 100 to 3600000',)
    """

    def __init__(
        self,
        message: str,
        file: str | os.PathLike[str] = "",
        problems: Iterable[tuple[int | None, str, str, Iterable[str]]] = (),
    ) -> None:
        self.file = os.fspath(file)
        self.problems = [Problem(line, key, text, tuple(allowed)) for line, key, text, allowed in problems]
        super().__init__(message)

    @property
    def line(self) -> int | None:
        """Line of the first problem."""
        return self.problems[0].line if self.problems else None

    @property
    def key(self) -> str:
        """Key of the first problem."""
        return self.problems[0].key if self.problems else ""

    @property
    def allowed(self) -> tuple[str, ...]:
        """What is allowed there."""
        return self.problems[0].allowed if self.problems else ()

    def __reduce__(self) -> tuple[type["ScenarioError"], tuple[object, ...]]:
        problems = [(problem.line, problem.key, problem.message, problem.allowed) for problem in self.problems]
        return type(self), (str(self), self.file, problems)


class ResultsError(RuntimeError):
    """Results that are damaged, not finished, in use, or of another sweep. `file` says which, if it is one."""

    def __init__(self, message: str, file: str | os.PathLike[str] | None = None) -> None:
        self.file = None if file is None else os.fspath(file)
        super().__init__(message)

    def __reduce__(self) -> tuple[type["ResultsError"], tuple[object, ...]]:
        return type(self), (str(self), self.file)


class SweepError(RuntimeError):
    """A sweep that ended early. Finished runs are kept: the same call goes on with the rest."""


class VersionError(SweepError):
    """A worker that has another version of evenkeel, or none.

    `workers` has the address of each such worker, and its version (None: it has no evenkeel).
    """

    def __init__(self, message: str, workers: dict[str, str | None] | None = None) -> None:
        self.workers = dict(workers or {})
        super().__init__(message)

    def __reduce__(self) -> tuple[type["VersionError"], tuple[object, ...]]:
        return type(self), (str(self), self.workers)
