# SPDX-License-Identifier: MIT OR Apache-2.0
"""MkDocs' hook for the site: pages are written for a reader of the repository, and links lead to files of it.

Some files outside docs/ are pages of the site. A link to any other file is one to the repository, if mkdocs.yml has a
repo_url; without, it is the file's name. Links that lead nowhere stay as they are, and MkDocs complains of them.
"""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

# Files of the repository, and the pages that they are. `results/index.md` cannot be a page by its own name, because the
# README beside it is the index.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE.md": "license.md",
    "SECURITY.md": "security.md",
    "bench/ns3/README.md": "ns-3.md",
    "docs/results/index.md": "results/pages.md",
}
SOURCES = {page: source for source, page in PAGES.items()}

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)


def top(config) -> Path:
    return Path(config.config_file_path).parent


def on_config(config):
    """Replaces entries of the navigation that end in `*.md` by the files that match; there may be none."""
    config.nav = expanded(config.nav, Path(config.docs_dir))
    return config


def expanded(entries: list, docs: Path) -> list:
    found = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, inner),) = entry.items()
            inner = expanded(inner, docs) if isinstance(inner, list) else inner
            found += [{title: inner}] if inner else []
        elif entry.endswith("*.md"):
            files = sorted(str(file.relative_to(docs)) for file in docs.glob(entry))
            found += [file for file in files if file not in entries]
        else:
            found.append(entry)
    return found


def on_files(files, config):
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(top(config) / source)))
    return files


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    source = SOURCES.get(uri, f"docs/{uri}")

    def link(found: re.Match) -> str:
        picture, text, target = found.groups()
        name, mark, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not name:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
        at = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if at and (known := files.get_file_from_path(at)) and known.inclusion.is_included():
            relative = posixpath.relpath(at, posixpath.dirname(uri) or ".")
            return f"{picture}[{text}]({relative}{mark}{anchor})"
        if not os.path.exists(top(config) / path):
            return found[0]
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/HEAD/{path})"
        return text if path.split("/")[-1] in text else f"{text} (`{path}`)"

    # Comments mark what is generated; a table right behind one would be no table here.
    parts = FENCE.split(COMMENT.sub("", markdown))
    markdown = "".join(part if FENCE.fullmatch(part) else LINK.sub(link, part) for part in parts)
    # Pages of results outside the navigation are as wide as their tables. A scenario's page begins with the heading
    # that it has in a report of several scenarios, which becomes the title.
    if page.parent is None:
        page.meta["hide"] = ["navigation", "toc"]
    return re.sub(r"\A#+ ", "# ", markdown)
