#!/usr/bin/env python3
"""Checks the links of all Markdown files: files and anchors of this repository, and names that the guides quote.

A link must name a file of the repository, and an anchor a heading of its page, by GitHub's rule for anchors. In
docs/guides, a path in backquotes that begins with a directory of the repository must exist, a CamelCase word in backquotes
must be in the sources or in links_allowed.txt, since it is a reason, a condition or a field that a reader searches for, and
each line of a ```text block must contain a message of the programs, that is a string literal of the sources with its
placeholders filled in.

usage: links.py SOURCE_DIR
"""
import pathlib
import re
import subprocess
import sys

from rooms import ROOMS

LINK = re.compile(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
HTML = re.compile(r"<(?:img|a)[^>]+(?:src|href)=\"([^\"]+)\"")
SOURCES = (*(room + "/" for room in ROOMS), "charts/oarlock/templates", "charts/oarlock/values.yaml", "manifests/")
# Names of Kubernetes, which this repository's sources need not contain, and names with a slash that are not paths.
ALLOWED = set((pathlib.Path(__file__).parent / "links_allowed.txt").read_text().split())


def tracked(root):
    out = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True,
                         capture_output=True, text=True)
    return sorted(name for name in set(out.stdout.split("\0")) if name and (root / name).is_file())


def without_code(text):
    """The text with fenced code and code spans replaced by blanks, on the same lines."""
    text = re.sub(r"^```.*?^```", lambda match: "\n" * match.group().count("\n"), text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "``", text)


def anchors(text):
    """GitHub's anchors of the headings."""
    found = set()
    for line in re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).splitlines():
        heading = re.match(r"#{1,6} +(.*)", line)
        if not heading:
            continue
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number, name = 0, anchor
        while name in found:
            number += 1
            name = f"{anchor}-{number}"
        found.add(name)
    return found


def check_links(root, name, text):
    prose = without_code(text)
    for match in list(LINK.finditer(prose)) + list(HTML.finditer(prose)):
        target, _, anchor = match[1].partition("#")
        place = f"{name}:{prose.count(chr(10), 0, match.start()) + 1}"
        if re.match(r"\w+:", target):
            continue
        path = (root / name).parent / target if target else root / name
        if not path.exists():
            yield f"{place}: {target} does not exist"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text()):
            yield f"{place}: {target or name} has no heading #{anchor}"


def check_names(root, name, text, directories, sources):
    prose = re.sub(r"^```.*?^```", lambda match: "\n" * match.group().count("\n"), text, flags=re.M | re.S)
    for match in re.finditer(r"`([^`\n]+)`", prose):
        place = f"{name}:{prose.count(chr(10), 0, match.start()) + 1}"
        code = match[1]
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)+", code) and code.split("/")[0] in directories and code not in ALLOWED and not (root / code).exists():
            yield f"{place}: {code} does not exist"
        if re.fullmatch(r"[A-Z][a-z]+([A-Z]+[a-z]*)+", code) and code not in ALLOWED and code not in sources:
            yield f"{place}: {code} is not in the sources; correct it, or add it to tests/lint/links_allowed.txt"


def message_patterns(sources):
    """A pattern for each string literal with at least 12 letters besides its placeholders; adjacent literals are one."""
    patterns = set()
    for match in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', sources):
        literal = re.sub(r'"\s*"', "", match.group())[1:-1]
        pieces = re.split(r"\{[^{}]*\}", literal)
        if sum(character.isalpha() for piece in pieces for character in piece) >= 12:
            patterns.add(".+?".join(re.escape(piece) for piece in pieces))
    return [re.compile(pattern) for pattern in patterns]


def check_messages(name, text, patterns):
    for match in re.finditer(r"^```text\n(.*?)^```$", text, re.M | re.S):
        for number, line in enumerate(match[1].splitlines(), text.count("\n", 0, match.start()) + 2):
            if not any(pattern.search(line) for pattern in patterns):
                yield f"{name}:{number}: no program prints '{line}'"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = tracked(root)
    directories = {file.split("/")[0] for file in files if "/" in file} - {"build"}
    sources = "\n".join((root / file).read_text(errors="replace") for file in files if file.startswith(SOURCES))
    patterns = message_patterns("\n".join((root / file).read_text() for file in files
                                          if file.startswith(SOURCES) and file.endswith((".cc", ".h"))))
    pages = [file for file in files if file.endswith(".md")]
    problems = []
    for page in pages:
        text = (root / page).read_text()
        problems += check_links(root, page, text)
        if page.startswith("docs/guides/"):
            problems += check_names(root, page, text, directories, sources)
            problems += check_messages(page, text, patterns)
    print("\n".join(problems) or f"the links of {len(pages)} pages have targets")
    sys.exit(1 if problems or not pages else 0)


if __name__ == "__main__":
    main()
