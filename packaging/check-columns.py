#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""No line of Rust has more than 120 columns, none of C more than 90, comments included; a tab ends at a multiple of
eight. In C a line may end in a longer string, so that a message can be searched for whole."""
import os
import re
import sys

COLUMNS = {".rs": 120, ".c": 90, ".h": 90}
FOREIGN = re.compile(r"\.mod\.c$|/vmlinux\.h$")

os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
lines = bad = 0
for top in ("algo", "bench", "crates", "kernel"):
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != "target"]
        for file in (os.path.join(folder, name) for name in sorted(names)):
            suffix = os.path.splitext(file)[1]
            if suffix not in COLUMNS or FOREIGN.search(file):
                continue
            most = COLUMNS[suffix]
            with open(file, encoding="utf-8") as opened:
                for number, line in enumerate(opened, 1):
                    lines += 1
                    wide = len(line.rstrip("\n").expandtabs(8))
                    if wide > most and not (suffix != ".rs" and re.search(r'"[,;)]*$', line)):
                        bad += 1
                        print(f"{file}:{number}: {wide} columns, and at most {most} are allowed", file=sys.stderr)
if not bad:
    print(f"columns: {lines} lines")
sys.exit(bool(bad))
