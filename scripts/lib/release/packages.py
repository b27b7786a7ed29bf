#!/usr/bin/env python3
"""Writes the list of the Debian packages that a program was compiled from and linked with, as SPDX 2.3.

usage: packages.py --build DIR --program bin/NAME --name NAME --version VERSION --arch amd64|arm64 --created TIME
                   [--url URL] [--licenses FILE]

The files come from Ninja's record of the build: every header that an object includes, and every library on the command line
of the linker. Each file outside of the sources and the build must belong to a package. The packages of a cross build are
those of its sysroot, whose file `packages` scripts/setup arm64 has written. With --licenses, the copyright files of the
packages are written into one file.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import urllib.parse

LIBRARY = re.compile(r"\.(a|so(\.[0-9.]+)?)$")


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode not in (0, 1):  # dpkg -S ends with 1 if it does not know one of many files
        sys.exit(f"error: {' '.join(command)[:200]} failed: {result.stderr.strip()}")
    return result.stdout


def used_files(build, program):
    """Absolute paths of the files outside of the sources and the build that the program was made from."""
    inputs = run("ninja", "-C", str(build), "-t", "inputs", program).splitlines()
    inputs = [line for line in inputs if not line.startswith("ninja: ")]
    objects = [line for line in inputs if line.endswith(".o")]
    if not objects:
        sys.exit(f"error: {build} has no record of {program}: build it there first")
    files = {line for line in inputs if LIBRARY.search(line) and line.startswith("/")}
    for line in run("ninja", "-C", str(build), "-t", "deps", *objects).splitlines():
        if line.startswith("    "):
            files.add(line.strip())
    source = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", (build / "CMakeCache.txt").read_text(), re.M).group(1)
    roots = (f"{source}/", f"{build}/")
    return {file for file in files if file.startswith("/") and not file.startswith(roots)}


def owners_on_this_machine(files):
    """{file: package} by dpkg; of a package that exists for several architectures, the one that has the file."""
    owners = {}
    names = {str(path): file for file in files for path in (pathlib.PurePath(file), pathlib.Path(file).resolve())}
    for line in run("dpkg", "-S", *sorted(names)).splitlines():
        package, _, path = line.partition(": ")
        if path in names and "," not in package:
            owners[names[path]] = package
    return owners


def describe_installed(packages):
    """{package: (name, version, source)}"""
    out = run("dpkg-query", "-W", "-f", "${binary:Package}\t${Package}\t${Version}\t${source:Package}\n", *sorted(packages))
    known = {}
    for line in out.splitlines():
        binary, name, version, source = line.split("\t")
        known[binary] = known[name] = (name, version, source)
    return {package: known[package] for package in packages}


def sysroot_of(build):
    toolchain = re.search(r"^CMAKE_TOOLCHAIN_FILE:\w+=(.+)$", (build / "CMakeCache.txt").read_text(), re.M)
    if not toolchain:
        return None
    for name in ("CMakeFiles/rules.ninja", "build.ninja"):  # the first one has the commands of the rules
        match = re.search(r"--sysroot=(\S+)", (build / name).read_text())
        if match:
            return pathlib.Path(match.group(1))
    sys.exit(f"error: {build} was built for another machine, but its commands name no --sysroot")


def owners_in_sysroot(files, sysroot):
    """{file: (name, version, source)}, by the list that scripts/setup arm64 has written."""
    by_path = {}
    for line in (sysroot / "packages").read_text().splitlines():
        name, version, source, path = line.split("\t")
        by_path[path] = (name, version, source)
    owners = {}
    for file in files:
        for path in (pathlib.Path(file), pathlib.Path(file).resolve()):
            if path.is_relative_to(sysroot):
                found = by_path.get(f"/{path.relative_to(sysroot)}")
                if found:
                    owners[file] = found
    return owners


def find_packages(build, program):
    """The set of (name, version, source) of all used files."""
    files = used_files(build.resolve(), program)
    sysroot = sysroot_of(build)
    in_sysroot = {file for file in files if sysroot and pathlib.Path(file).is_relative_to(sysroot)}
    owners = owners_in_sysroot(in_sysroot, sysroot) if in_sysroot else {}
    installed = owners_on_this_machine(files - in_sysroot)
    details = describe_installed(set(installed.values()))
    owners.update({file: details[package] for file, package in installed.items()})
    unknown = sorted(files - set(owners))
    if unknown:
        sys.exit(f"error: no Debian package has {unknown[0]} ({len(unknown)} such files), which {program} was built from")
    return set(owners.values())


def spdx(options, packages):
    program = {
        "SPDXID": "SPDXRef-oarlock", "name": "oarlock", "versionInfo": options.version, "licenseDeclared": "Apache-2.0",
        "supplier": "Organization: Oarlock", "downloadLocation": options.url or "NOASSERTION", "filesAnalyzed": False,
        "primaryPackagePurpose": "APPLICATION"}
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": options.name,
        "documentNamespace": f"https://oarlock.dev/spdx/{options.name}",
        "creationInfo": {"created": options.created, "creators": ["Tool: oarlock-release"]},
        "packages": [program],
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-oarlock"}]}
    for name, version, source in sorted(packages):
        identifier = "SPDXRef-deb-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)
        qualifiers = {"arch": options.arch, "distro": "debian-12", "upstream": source}
        locator = f"pkg:deb/debian/{urllib.parse.quote(name)}@{urllib.parse.quote(version)}?{urllib.parse.urlencode(qualifiers)}"
        document["packages"].append({
            "SPDXID": identifier, "name": name, "versionInfo": version, "supplier": "Organization: Debian",
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}]})
        document["relationships"].append(
            {"spdxElementId": "SPDXRef-oarlock", "relationshipType": "DEPENDS_ON", "relatedSpdxElement": identifier})
    return document


def licenses(packages, sysroot):
    parts = []
    for name, version, _ in sorted(packages):
        places = [root / "usr/share/doc" / name / "copyright" for root in (pathlib.Path("/"), sysroot) if root]
        file = next((place for place in places if place.exists()), None)
        if not file:
            sys.exit(f"error: {places[0]} does not exist, so the license of {name} is not known")
        parts.append(f"===== {name} {version} =====\n\n{file.read_text(errors='replace').strip()}\n")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(add_help=False, usage=__doc__)
    for option in ("build", "program", "name", "version", "arch", "created", "url", "licenses"):
        parser.add_argument(f"--{option}", default=None)
    options = parser.parse_args()
    packages = find_packages(pathlib.Path(options.build), options.program)
    json.dump(spdx(options, packages), sys.stdout, indent=1)
    print()
    if options.licenses:
        pathlib.Path(options.licenses).write_text(licenses(packages, sysroot_of(pathlib.Path(options.build))))


if __name__ == "__main__":
    main()
