# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where the runs of a sweep are kept as they come: a directory, or an object store that fsspec knows.

Both have the files of `evenkeel sweep` (docs/results-format.md): `sweep.json`, `unfinished/NNNNNN.json`, and in the
end `meta.json` and `runs.jsonl`. So in a directory `evenkeel sweep` goes on with what was begun here, and the other way
round.
"""

import os
import re
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from evenkeel._native import Lock, Plan, Results
from evenkeel.errors import ResultsError, SweepError

SWEEP_FILE = "sweep.json"
UNFINISHED = "unfinished"


class Store(Protocol):
    """One sweep's place. It is open in a `with` block."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def where(self) -> str:
        """As errors call it."""
        ...

    def read(self, name: str) -> bytes | None:
        """A file, or None if it is not there."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Puts a file there, as a whole or not at all."""
        ...

    def unfinished(self) -> list[str]:
        """Names of the files of single runs."""
        ...

    def is_complete(self) -> bool:
        """Whether a sweep that was begun has all its results in place."""
        ...

    def forget(self) -> None:
        """Removes what makes it a sweep's, so that a new one can begin."""
        ...

    def finish(self, plan: Plan, sweep: bytes, lines: list[bytes], format: str) -> Results:
        """Puts the results in place and removes the single runs."""
        ...

    def load(self) -> Results:
        """The results of a complete sweep."""
        ...


def open_store(place: str | os.PathLike[str]) -> Store:
    """A directory, or what an fsspec URL names."""
    text = os.fspath(place)
    if "://" not in text:
        return Directory(Path(text))
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as missing:
        raise SweepError(f"{text} is a URL, and fsspec is not installed: pip install 'evenkeel[sweep]'") from missing
    system, path = url_to_fs(text)
    protocols = [system.protocol] if isinstance(system.protocol, str) else system.protocol
    return Directory(Path(path)) if "file" in protocols else Remote(system, path, text)


class Directory:
    """A directory, which one sweep at a time writes: it has the lock that `evenkeel sweep` takes, too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: Lock | None = None

    def __enter__(self) -> Self:
        self._lock = Lock(self._path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.release()

    def where(self) -> str:
        return str(self._path)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        file = self._path / name
        part = file.with_suffix(".part")
        file.parent.mkdir(parents=True, exist_ok=True)
        # Synced before it gets its name: after a power cut, what has the name is whole.
        with part.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(file)

    def unfinished(self) -> list[str]:
        folder = self._path / UNFINISHED
        return sorted(f"{UNFINISHED}/{file.name}" for file in folder.iterdir()) if folder.is_dir() else []

    def is_complete(self) -> bool:
        return not (self._path / UNFINISHED).is_dir()

    def forget(self) -> None:
        # This file goes first: without it nothing is taken for a sweep, whenever this is killed.
        (self._path / SWEEP_FILE).unlink(missing_ok=True)
        shutil.rmtree(self._path / UNFINISHED, ignore_errors=True)
        (self._path / UNFINISHED).mkdir(parents=True, exist_ok=True)

    def finish(self, plan: Plan, sweep: bytes, lines: list[bytes], format: str) -> Results:
        results = plan.write(self._path, sweep, lines, format)
        shutil.rmtree(self._path / UNFINISHED)
        return results

    def load(self) -> Results:
        return Results.load(self._path)


class Remote:
    """An object store. It has no lock: two clients of one sweep do the same runs twice, and write the same bytes."""

    def __init__(self, system: Any, path: str, url: str) -> None:
        self._system, self._path, self._url = system, path.rstrip("/"), url

    def __enter__(self) -> Self:
        self._system.invalidate_cache()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def where(self) -> str:
        return self._url

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def read(self, name: str) -> bytes | None:
        try:
            data: bytes = self._system.cat_file(self._at(name))
        except FileNotFoundError:
            return None
        return data

    def write(self, name: str, data: bytes) -> None:
        # Object stores show an object when all of it is there.
        self._system.pipe_file(self._at(name), data)

    def unfinished(self) -> list[str]:
        try:
            found = self._system.ls(self._at(UNFINISHED), detail=False)
        except FileNotFoundError:
            return []
        return sorted(f"{UNFINISHED}/{name.rsplit('/', 1)[-1]}" for name in found)

    def is_complete(self) -> bool:
        return bool(self._system.exists(self._at("runs.jsonl")))

    def _remove(self, names: list[str]) -> None:
        for name in names:
            try:
                self._system.rm_file(self._at(name))
            except FileNotFoundError:
                pass

    def forget(self) -> None:
        self._remove([SWEEP_FILE, "runs.jsonl", "meta.json", *self.unfinished()])

    def finish(self, plan: Plan, sweep: bytes, lines: list[bytes], format: str) -> Results:
        if format != "jsonl":
            raise ValueError("an object store takes the format 'jsonl'; save() writes others into a directory")
        meta, runs = plan.meta(sweep), b"".join(line + b"\n" for line in lines)
        # The runs come last: they say that all is there.
        self.write("meta.json", meta)
        self.write("runs.jsonl", runs)
        self._remove(self.unfinished())
        return Results._of_bytes(meta, runs)

    def load(self) -> Results:
        meta, runs = self.read("meta.json"), self.read("runs.jsonl")
        if meta is None or runs is None:
            raise ResultsError(f"{self._url} has no meta.json or no runs.jsonl", self._url)
        return Results._of_bytes(meta, runs)


def file_of(index: int) -> str:
    """The file of a finished run."""
    return f"{UNFINISHED}/{index:06}.json"


def run_of(name: str) -> int | None:
    """The number of the run whose file this is."""
    found = re.fullmatch(rf"{UNFINISHED}/(\d{{6,}})\.json", name)
    index = int(found[1]) if found else None
    return index if index is not None and file_of(index) == name else None
