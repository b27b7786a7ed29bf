#!/usr/bin/env python3
"""Checks that messages name keys of the trainer's configuration that exist.

A word such as `batch.size` or `spec.trainer.tracking.wandb.project` in a string of a C++ file, whose first part is a section
of docs/trainer-config.md, must be a key of that section. The reference is generated from the program, so that it has all
keys. Keys without a section (`epochs`) and keys in braces (`amp: {enabled: true}`) are not recognized.

usage: config_keys.py SOURCE_DIR
"""
import collections
import pathlib
import re
import sys

from rooms import ROOMS

SECTION = re.compile(r"^### `([a-z_.]+)`")
KEY = re.compile(r"^\| `([a-z0-9_]+)` \|")
# What a C++ file consists of, as far as strings are concerned; the first alternative that matches a place is its kind.
TOKEN = re.compile(
    r"""(?P<other>//[^\n]*|/\*.*?\*/|^[ \t]*\#include[^\n]*|(?<!\w)'(?:[^'\\\n]|\\.)+')"""
    r"""|R"(?P<end>\w*)\((?P<raw>.*?)\)(?P=end)"|"(?P<text>(?:[^"\\\n]|\\.)*)\"""",
    re.DOTALL | re.MULTILINE)
DOTTED = re.compile(r"(?<![\w./%])(?<!\w-)([a-z_]+(?:\.[a-z0-9_]+)+)\b(?![/(\w]|\.[a-z])")
# Endings of file names.
NOT_KEYS = {"json", "yaml", "yml", "pt", "csv", "svg", "md", "txt", "h", "cc", "py", "log", "bin", "so"}


def keys_by_section(text):
    sections, current = collections.defaultdict(set), None
    for line in text.splitlines():
        if line.startswith("#"):
            match = SECTION.match(line)
            current = match.group(1) if match else None
            if current and "." in current:
                parent, _, child = current.rpartition(".")
                sections[parent].add(child)
        elif current and (match := KEY.match(line)):
            sections[current].add(match.group(1))
    return sections


def strings(text):
    """Yields the line and the text of each string, with the strings that follow it directly."""
    line, begin, parts, end = 1, 0, [], 0
    for match in TOKEN.finditer(text):
        content = match["raw"] if match["raw"] is not None else match["text"]
        if parts and (content is None or text[end:match.start()].strip()):
            yield line, "".join(parts)
            parts = []
        if content is None:
            continue
        if not parts:
            line += text.count("\n", begin, match.start())
            begin = match.start()
        parts.append(content if match["raw"] is not None else re.sub(r"\\[nt]", " ", content))
        end = match.end()
    if parts:
        yield line, "".join(parts)


def keys_in_messages(root, sections):
    """Yields the place and the path of each word that names a key."""
    for directory in ROOMS:
        for path in sorted(p for p in (root / directory).rglob("*") if p.suffix in (".h", ".cc")):
            for line, text in strings(path.read_text()):
                for word in DOTTED.findall(text):
                    parts = word.removeprefix("spec.trainer.").split(".")
                    if len(parts) > 1 and parts[0] in sections and parts[-1] not in NOT_KEYS:
                        yield f"{path.relative_to(root)}:{line}", parts


def unknown_part(parts, sections):
    """Returns the section that does not have the next part of the path, or None."""
    for i in range(1, len(parts)):
        section = ".".join(parts[:i])
        if parts[i] not in sections.get(section, ()):
            return section
    return None


def main():
    root = pathlib.Path(sys.argv[1])
    sections = keys_by_section((root / "docs/trainer-config.md").read_text())
    found = list(keys_in_messages(root, sections))
    unknown = [(place, parts, section) for place, parts in found if (section := unknown_part(parts, sections))]
    for place, parts, section in unknown:
        known = ", ".join(sorted(sections.get(section, []))) or "no keys"
        print(f"{place}: '{'.'.join(parts)}' is not a key of the trainer; {section} has {known}")
    if len(found) < 20:
        sys.exit(f"only {len(found)} keys were found in messages; the patterns of this test are wrong")
    if unknown:
        sys.exit(f"{len(unknown)} of {len(found)} keys in messages do not exist")
    print(f"{len(found)} keys in messages exist")


if __name__ == "__main__":
    main()
