#!/usr/bin/env python3
"""Checks that messages name keys of the trainer's configuration that exist.

A word such as `batch.size` in a string of a C++ file, whose first part is a section of docs/trainer-config.md, must be a
key of that section. The reference is generated from the program, so that it has all keys.

usage: config_keys.py SOURCE_DIR
"""
import collections
import pathlib
import re
import sys

SECTION = re.compile(r"^### `([a-z_.]+)`")
KEY = re.compile(r"^\| `([a-z0-9_]+)` \|")
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
DOTTED = re.compile(r"(?<![\w./%{-])([a-z_]+)\.([a-z0-9_]+)\b(?![/(\w]|\.[a-z])")
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


def keys_in_messages(root, sections):
    """Yields the place, section and key of each word that names a key."""
    for folder in ("cli", "common", "operator", "trainer"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in (".h", ".cc")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if line.lstrip().startswith(("#include", "//")):
                    continue
                for section, key in DOTTED.findall(" ".join(string[1:-1] for string in STRING.findall(line))):
                    if section in sections and key not in NOT_KEYS:
                        yield f"{path.relative_to(root)}:{number}", section, key


def main():
    root = pathlib.Path(sys.argv[1])
    sections = keys_by_section((root / "docs/trainer-config.md").read_text())
    found = list(keys_in_messages(root, sections))
    unknown = [(place, section, key) for place, section, key in found if key not in sections[section]]
    for place, section, key in unknown:
        print(f"{place}: '{section}.{key}' is not a key of the trainer; {section} has {', '.join(sorted(sections[section]))}")
    if len(found) < 20:
        sys.exit(f"only {len(found)} keys were found in messages; the patterns of this test are wrong")
    if unknown:
        sys.exit(f"{len(unknown)} of {len(found)} keys in messages do not exist")
    print(f"{len(found)} keys in messages exist")


if __name__ == "__main__":
    main()
