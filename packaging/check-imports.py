#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks who imports whom, as docs/architecture.md has it: crates, the modules of a crate, and files of Rust.

    check-imports.py CARGO_COMMAND...

Files do not import each other in a circle, except a module and those inside it. Imports are `use` lines and paths in
code; a name that `pub use` only hands on is an import of the file that takes it. Unit tests are left out.
"""
import json
import os
import re
import subprocess
import sys

# A crate: the crates it may take, and those that only its tests and benchmarks may.
CRATES = {
    "algo": ("", ""),
    "algo-fuzz": ("algo settings", ""),
    "quote": ("", ""),
    "settings": ("algo quote", ""),
    "scenario": ("quote settings", ""),
    "testbed": ("algo", ""),
    "agent": ("algo quote settings", "testbed"),
    "lab": ("quote scenario settings", ""),
    "sim": ("algo quote scenario settings", ""),
    "report": ("quote scenario", ""),
    "python": ("quote report scenario sim", ""),
    "evenkeel": ("agent lab quote report scenario settings sim", "algo testbed"),
}
# A module of a crate: the modules of that crate it may take, besides its own. Unlisted modules may take any.
MODULES = {
    "agent": {
        "common": "",
        "channel": "",
        "channel/wire": "channel/endpoint",
        "netns": "datapath/intf",
        "tc": "netlink netns",
        "features": "tc",
        "datapath": "common features netdevice netns tc",
        "guest": "channel common file",
        "guest/pvtcp": "",
        "host": "channel common datapath features file netdevice netlink netns",
        "doctor": "channel common features guest netdevice netlink",
    },
    "lab": {
        "backlog": "",
        "capture": "",
        "proto": "backlog",
        "guest": "ask host proto",
        "host": "ask backlog error interrupt prepare proto",
        "workload": "error host proto",
    },
    "scenario": {"format": "metric result", "metric": "format stats"},
    "sim": {
        "time": "",
        "packet": "footprint memory time",
        "event": "footprint memory packet time",
        "net": "event footprint memory packet time units",
        "tcp": "footprint packet time",
        "host": "footprint packet time",
        "guest": "footprint host packet tcp time",
        "workload": "footprint packet time",
        "world": "event footprint guest host memory net packet tcp time workload",
        "record": "footprint packet tcp time workload world",
    },
}
# Crates whose mechanisms take nothing from one another. Each is a module of `host` that is named as a folder of algo/.
APART = ("agent", "sim")

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|\bb?r(#*)".*?"\1|"(?:\\.|[^"\\])*"|\'(?:\\[^\']+|[^\\\'])\'', re.S)
NAMES = re.compile(r"\w+|\*")
WORDS = re.compile(r"\b\w+(?:\s*::\s*\w+)+")
MEND = "move what they share into one that knows none of them"
faults = []


def end_of(text, at):
    """Where the item that begins at `at` ends: behind its braces or its semicolon."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0 and text[place] in ";}":
            return place + 1
    return len(text)


def code_of(file):
    """The text without comments, literals and tests; modules in it are dissolved."""
    with open(file, encoding="utf-8") as opened:
        text = NOISE.sub(lambda found: "''" if found[0][0] in "br\"'" else " ", opened.read())
    while test := re.search(r"#\[cfg\((?:all\()?test\b[^]]*]", text):
        text = text[: test.start()] + text[end_of(text, test.end()) :]
    while module := re.search(r"\bmod \w+\s*\{", text):
        end = end_of(text, module.start())
        inner = re.sub(r"\bsuper::(super::)?", lambda up: up[1] or "self::", text[module.end() : end - 1])
        text = text[: module.start()] + inner + text[end:]
    return text


def leaves(tree, before=()):
    """The paths of a `use` tree, each with the name that it has here."""
    head, brace, rest = tree.partition("{")
    if not brace:
        path, _, alias = tree.partition(" as ")
        names = before + tuple(NAMES.findall(path))
        names = names[:-1] if names[-1] == "self" and len(names) > 1 else names
        yield names, alias.strip() or names[-1]
        return
    depth, begin = 0, 0
    rest = rest[: rest.rindex("}")] + ","
    for place, letter in enumerate(rest):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if rest[begin:place].strip():
                yield from leaves(rest[begin:place], before + tuple(NAMES.findall(head)))
            begin = place + 1


class Module:
    """A file, as a module of its crate."""

    def __init__(self, file, folder, parent=None):
        self.file, self.parent, self.root = file, parent, parent.root if parent else self
        self.uses, self.children = [], {}
        self.text = re.sub(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", self.take, code_of(file))
        self.own = set(re.findall(r"\b(?:fn|struct|enum|trait|type|const|static|union)\s+(\w+)", self.text))
        self.names = {alias: path for path, alias, _ in self.uses if alias != "*"}
        for name in re.findall(r"\bmod (\w+)\s*;", self.text):
            for below in (f"{folder}/{name}.rs", f"{folder}/{name}/mod.rs"):
                if os.path.exists(below):
                    self.children[name] = Module(below, f"{folder}/{name}", self)

    def __str__(self):
        return self.file

    def take(self, use):
        # What a dissolved module takes from the file around it is there already.
        found = [leaf for leaf in leaves(use[2]) if leaf[0][0] != "self" or len(leaf[0]) > 2]
        self.uses += [(path, alias, bool(use[1])) for path, alias in found]
        return " "

    def all(self):
        yield self
        for child in self.children.values():
            yield from child.all()

    def find(self, path, depth=0):
        """The modules that hand on the last name of a path from here, and the one that has it; none for other crates'
        names, and for modules."""
        here, rest, is_ours = self, list(path), False
        while rest and rest[0] in ("crate", "self", "super"):
            here = {"crate": self.root, "self": here, "super": here.parent}[rest.pop(0)]
            is_ours = True
        while rest and here and depth < 20:
            if rest[0] in here.children:
                here, is_ours = here.children[rest.pop(0)], True
            elif rest[0] in here.names and here.names[rest[0]] != tuple(path):
                found = here.find(here.names[rest[0]] + tuple(rest[1:]), depth + 1)
                return [here, *found] if found else []
            else:
                return [here] if is_ours or rest[0] in here.own else []
        return []

    def imports(self):
        """Each name that it takes from other modules, with these modules as `find` gives them."""
        words = set(re.findall(r"\w+", self.text))
        taken = [path for path, alias, is_pub in self.uses if not is_pub or alias in words]
        # A path that begins with an imported type or function is that import once more.
        paths = map(tuple, map(NAMES.findall, WORDS.findall(self.text)))
        taken += [path for path in paths if not self.find(self.names.get(path[0], path[:1]))]
        for path in taken:
            found = [module for module in self.find(path) if module is not self]
            if found:
                yield found, path[-1]

    def holds(self, other):
        return other.parent is not None and (other.parent is self or self.holds(other.parent))

    def is_in(self, modules):
        inside = re.sub(r"(/mod)?\.rs$", "/", self.file.partition("/src/")[2])
        return any(inside.startswith(f"{module}/") for module in modules)


def circles(edges):
    """Sets of modules in which each leads to every other."""
    onward = {}
    for one, other in edges:
        onward.setdefault(one, []).append(other)
    reach = {}
    for one in onward:
        reach[one], todo = set(), [one]
        while todo:
            for other in onward.get(todo.pop(), []):
                if other not in reach[one]:
                    reach[one].add(other)
                    todo.append(other)
    found = {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in onward if a in reach[a]}
    return [sorted(circle, key=str) for circle in found]


def listed(names):
    return ", ".join(sorted(names)) or "none"


def check_files(edges):
    # Imports both up and down between a module and those inside it are no circle; only upward or only downward ones may
    # be part of one.
    up = {(a, b): names for (a, b), names in edges.items() if not a.holds(b)}
    down = {(a, b): names for (a, b), names in edges.items() if not b.holds(a)}
    told = set()
    for some in (up, down):
        for circle in circles(some):
            ties = [(a, b) for a in circle for b in circle if (a, b) in some]
            if not told.issuperset(ties):
                told.update(ties)
                lines = [f"\n  {a} takes {listed(some[a, b])} from {b}" for a, b in ties]
                faults.append("a circle of imports; " + MEND + "".join(lines))


def mechanisms(crate):
    host = f"crates/{crate}/src/host"
    is_there = lambda name: os.path.exists(f"{host}/{name}.rs") or os.path.exists(f"{host}/{name}")
    return [f"host/{name}" for name in sorted(os.listdir("algo")) if is_there(name)]


def check_modules(crate, edges):
    for (a, b), names in edges.items():
        apart = mechanisms(crate) if crate in APART else []
        for module in apart:
            if a.is_in([module]) and b.is_in(set(apart) - {module}):
                faults.append(f"{a} takes {listed(names)} from {b}, and {listed(apart)} are to know no other; {MEND}")
        for module, may in MODULES.get(crate, {}).items():
            if a.is_in([module]) and not b.is_in([module, *may.split()]):
                takes = f"{a} takes {listed(names)} from {b}, and `{module}` may take from {listed(may.split())}"
                faults.append(f"{takes}; {MEND}, or change MODULES here and docs/architecture.md")


def check_crate(package):
    """Yields the crates that this one takes, tests included."""
    crate = package["name"].removeprefix("evenkeel-")
    if crate not in CRATES:
        faults.append(f"the crate {crate} is not in CRATES; say there, and in docs/architecture.md, whom it may take")
    usual, tests = (set(may.split()) for may in CRATES.get(crate, ("", "")))
    for dependency in package["dependencies"]:
        if dependency.get("path"):
            name, kind = dependency["name"].removeprefix("evenkeel-"), dependency["kind"]
            may = usual | tests if kind == "dev" else usual
            if crate in CRATES and name not in may:
                place = f"{kind}-dependencies" if kind else "dependencies"
                has = f"{crate} has {name} among its {place}, and may have {listed(may)}"
                faults.append(f"{has}; {MEND}, or change CRATES here and docs/architecture.md")
            yield crate, name


def main():
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.chdir(top)
    command = [*sys.argv[1:], "metadata", "--no-deps", "--locked", "--format-version", "1"]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]
    files, knows = set(), set()
    for package in packages:
        knows.update(check_crate(package))
        for target in package["targets"]:
            root = os.path.relpath(target["src_path"], top)
            modules = list(Module(root, os.path.dirname(root)).all())
            edges, all_edges = {}, {}
            for module in modules:
                for found, name in module.imports():
                    edges.setdefault((module, found[-1]), set()).add(name)
                    for one in found:
                        all_edges.setdefault((module, one), set()).add(name)
            check_files(edges)
            check_modules(package["name"].removeprefix("evenkeel-"), all_edges)
            files.update(module.file for module in modules)
    for circle in circles(knows):
        faults.append(f"a circle of crates, tests included: {listed(circle)}; {MEND}")
    for fault in sorted(set(faults)):
        print(f"check-imports: {fault}", file=sys.stderr)
    if not faults:
        print(f"imports: {len(packages)} crates and {len(files)} files take from whom they may, in no circle")
    sys.exit(bool(faults))


main()
