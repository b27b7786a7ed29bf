#!/usr/bin/env python3
"""Reads CHANGELOG.md, which has the form of https://keepachangelog.com.

usage: changelog.py check FILE            prints its problems, and fails if there are any
       changelog.py notes FILE VERSION ADDRESS
                                          prints the section of a version for the page of a release: relative links
                                          start at ADDRESS, and each paragraph is one line
"""
import datetime
import pathlib
import re
import sys

# The headings within a version.
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limitations")
HEADING = re.compile(r"^## \[(Unreleased|\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)\](?: - (.+))?$")


def section(text, version):
    """The lines of a version below its heading, joined; None if there is none."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith("## "):
            match = HEADING.match(line)
            inside = bool(match) and match.group(1) == version
        elif inside:
            lines.append(line)
    return "\n".join(lines).strip() if lines else None


def notes(text, version, address):
    """The section of a version as a forge shows it, where line breaks count; None if there is none."""
    body = section(text, version)
    if body is None:
        return None
    lines = []
    for line in body.splitlines():
        if lines and lines[-1] and not lines[-1].startswith("#") and re.match(r" *[^\s#|-]", line):
            lines[-1] += " " + line.strip()
        else:
            lines.append(line)
    return re.sub(r"\]\((?![a-z]+:|#)([^)]+)\)", rf"]({address}/\1)", "\n".join(lines))


def order(version):
    """Sorts as semantic versions do, pre-releases before their release."""
    core, _, pre = version.partition("-")
    return [int(part) for part in core.split(".")], pre == "", [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in pre.split(".")]


def problems(text):
    found, versions, dates = [], [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            match = HEADING.match(line)
            if not match:
                found.append(f"line {number}: '{line}' is not '## [VERSION] - DATE'")
                continue
            version, date = match.groups()
            if version == "Unreleased":
                if versions or date:
                    found.append(f"line {number}: '## [Unreleased]' is the first section and has no date")
                continue
            versions.append(version)
            if date == "Unreleased" and len(versions) == 1:
                continue
            try:
                dates.append(datetime.date.fromisoformat(date or ""))
            except ValueError:
                found.append(f"line {number}: the date of {version} is not YYYY-MM-DD")
        elif line.startswith("### ") and line[4:] not in KINDS:
            found.append(f"line {number}: '{line[4:]}' is not one of {', '.join(KINDS)}")
    if not versions:
        found.append("there is no version")
    if [order(version) for version in versions] != sorted((order(version) for version in set(versions)), reverse=True):
        found.append(f"versions are not unique and in descending order: {', '.join(versions)}")
    if dates != sorted(dates, reverse=True):
        found.append("dates are not in descending order")
    found += [f"the section of {version} has no change" for version in versions if "\n- " not in f"\n{section(text, version)}"]
    return found


def main():
    command, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if (command, len(arguments)) not in (("check", 1), ("notes", 3)):
        sys.exit(__doc__)
    text = pathlib.Path(arguments[0]).read_text()
    if command == "check":
        found = problems(text)
        print("\n".join(found) or "the changelog is well-formed")
        sys.exit(1 if found else 0)
    body = notes(text, *arguments[1:])
    if body is None:
        sys.exit(f"error: {arguments[0]} has no section for {arguments[1]}")
    print(body)


if __name__ == "__main__":
    main()
