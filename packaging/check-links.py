#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Says which links between the pages of the documentation lead nowhere: files and headings."""

import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """What a page can be linked to at: its headings as GitHub names them, and its own anchors."""
    found = set(re.findall(r'<a id="([^"]+)"', text))
    seen: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.*)$", CODE.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words).strip().lower().replace(" ", "-")
        seen[slug] = seen.get(slug, 0) + 1
        found.add(slug if seen[slug] == 1 else f"{slug}-{seen[slug] - 1}")
    return found


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.md"], check=True, capture_output=True, text=True).stdout
    pages = [Path(name) for name in listed.splitlines()]
    texts = {page.resolve(): page.read_text() for page in pages}
    links = wrong = 0
    for page in pages:
        for link in LINK.findall(CODE.sub("", texts[page.resolve()])):
            if re.match(r"[a-z]+:", link):
                continue
            links += 1
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page.resolve()
            if not target.exists():
                why = "there is no such file"
            elif anchor and target in texts and anchor not in anchors(texts[target]):
                why = "it has no such heading"
            else:
                continue
            wrong += 1
            print(f"{page}: {link}: {why}", file=sys.stderr)
    print(f"links: {links} in {len(pages)} pages")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
