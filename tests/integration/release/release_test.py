#!/usr/bin/env python3
"""Runs scripts/release with the command line that this build has made.

usage: release_test.py SOURCE_DIR BUILD_DIR

The rehearsal runs every step of .github/workflows/release.yaml. Its archive for arm64 contains the program of this machine with
another machine in the ELF header, since compiling for arm64 takes too long here; `scripts/release archive --arch arm64` does it.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import yaml

BUILD = pathlib.Path(sys.argv.pop(2)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
VERSION = (ROOT / "VERSION").read_text().strip()
REGISTRY = "registry.example.org/team"
CHART_VERSION = yaml.safe_load((ROOT / "charts/oarlock/Chart.yaml").read_text())["version"]
URL = "https://forge.example.org/team/oarlock"
AARCH64 = 183  # EM_AARCH64


def release(*arguments, root=ROOT, **environment):
    """The result of scripts/release; standard output and error are in stdout."""
    settings = {"OARLOCK_REGISTRY": REGISTRY, "OARLOCK_REPOSITORY_URL": URL, "LC_ALL": "C.UTF-8", **environment}
    return subprocess.run([root / "scripts/release", *arguments], env={**os.environ, **settings}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)


def undefined_symbols(program):
    return subprocess.run(["nm", "--dynamic", "--undefined-only", program], capture_output=True, text=True, check=True).stdout


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_arm64_build(directory):
    """A copy of what scripts/release reads of a build directory, whose program claims to be for arm64."""
    for name in ("bin/oarlock", "build.ninja", ".ninja_deps", ".ninja_log", "CMakeCache.txt", "cmake_install.cmake", "cli/cmake_install.cmake",
                 "cli/cluster/cmake_install.cmake"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(BUILD / name, directory / name)
    (directory / "bin/kubectl-oarlock").symlink_to("oarlock")
    for name in ("cmake_install.cmake", "cli/cmake_install.cmake", "cli/cluster/cmake_install.cmake"):
        file = directory / name
        file.write_text(file.read_text().replace(f"{BUILD}/bin", f"{directory}/bin").replace(f"{BUILD}/cli", f"{directory}/cli"))
    # Only the components of this directory exist.
    file = directory / "cmake_install.cmake"
    file.write_text(re.sub(rf'(?m)^ *include\("{re.escape(str(BUILD))}/.*\n', "", file.read_text()))
    shutil.copytree(BUILD / "CMakeFiles", directory / "CMakeFiles", ignore=lambda path, names: [name for name in names if not name.endswith(".ninja")])
    program = bytearray((directory / "bin/oarlock").read_bytes())
    program[18:20] = AARCH64.to_bytes(2, "little")  # e_machine
    (directory / "bin/oarlock").write_bytes(program)
    return directory


class Rehearsal(unittest.TestCase):
    """One rehearsal, whose results all tests read."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        work = pathlib.Path(cls.directory.name)
        result = release("rehearse", "--keep", str(work / "kept"), OARLOCK_BUILD_DIR_AMD64=str(BUILD),
                         OARLOCK_BUILD_DIR_ARM64=str(make_arm64_build(work / "arm64")))
        cls.output = result.stdout
        if result.returncode != 0:
            raise AssertionError(f"scripts/release rehearse ended with {result.returncode}:\n{cls.output}")
        cls.dist = work / "kept/jobs/publish/workspace/dist"

    def read(self, name):
        return (self.dist / name).read_text()

    def test_names_of_files(self):
        names = {path.name for path in self.dist.iterdir() if path.is_file()}
        archives = {f"oarlock_{VERSION}_linux_{arch}.{kind}" for arch in ("amd64", "arm64") for kind in ("tar.gz", "spdx.json")}
        self.assertEqual(names, archives | {f"oarlock-{CHART_VERSION}.tgz", "oarlock.yaml", "oarlock.dev_trainingjobs.yaml",
                                            "oarlock.dev_trainingprofiles.yaml", "install.yaml",
                                            "release-notes.md", "SHA256SUMS"})

    def test_checksums(self):
        listed = dict(reversed(line.split("  ")) for line in self.read("SHA256SUMS").splitlines())
        self.assertEqual(set(listed), {path.name for path in self.dist.iterdir() if path.is_file()} - {"SHA256SUMS", "release-notes.md"})
        for name, checksum in listed.items():
            self.assertEqual(checksum, sha256(self.dist / name), name)

    def test_archives_contain_program_and_licenses(self):
        for arch, machine in (("amd64", 62), ("arm64", AARCH64)):
            name = f"oarlock_{VERSION}_linux_{arch}"
            with tarfile.open(self.dist / f"{name}.tar.gz") as archive:
                files = {member.name: member for member in archive.getmembers() if member.isfile()}
                self.assertEqual({each.removeprefix(f"{name}/") for each in files},
                                 {"bin/oarlock", *(f"share/doc/oarlock/{each}" for each in ("LICENSE", "CHANGELOG.md", "THIRD-PARTY-LICENSES"))})
                program = files[f"{name}/bin/oarlock"]
                self.assertEqual((program.mode, program.uid, program.gid, program.uname), (0o755, 0, 0, ""))
                header = archive.extractfile(program).read(20)
                self.assertEqual(int.from_bytes(header[18:20], "little"), machine)
                licenses = archive.extractfile(f"{name}/share/doc/oarlock/THIRD-PARTY-LICENSES").read().decode()
                for package in ("libfmt-dev", "libyaml-cpp-dev", "nlohmann-json3-dev"):
                    self.assertIn(f"===== {package} ", licenses)

    def test_list_of_packages_is_that_of_the_build(self):
        document = json.loads(self.read(f"oarlock_{VERSION}_linux_amd64.spdx.json"))
        versions = {package["name"]: package["versionInfo"] for package in document["packages"]}
        self.assertEqual(versions["oarlock"], VERSION)
        for package in ("libfmt-dev", "libspdlog-dev", "libyaml-cpp-dev", "nlohmann-json3-dev", "libcli11-dev", "libexpected-dev", "libc6-dev"):
            installed = subprocess.run(["dpkg-query", "-W", "-f", "${Version}\n", package], capture_output=True, text=True, check=True).stdout
            self.assertEqual(versions.get(package), installed.splitlines()[0], package)
        self.assertNotIn("libhdf5-dev", versions)  # a library of the trainer only
        self.assertRegex(document["creationInfo"]["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def test_krew_manifest_matches_the_archives(self):
        manifest = yaml.safe_load(self.read("oarlock.yaml"))
        self.assertEqual(manifest["spec"]["version"], f"v{VERSION}")
        for platform in manifest["spec"]["platforms"]:
            name = f"oarlock_{VERSION}_linux_{platform['selector']['matchLabels']['arch']}.tar.gz"
            self.assertEqual(platform["uri"], f"https://forge.example.org/Example/oarlock/releases/download/v{VERSION}/{name}")
            self.assertEqual(platform["sha256"], sha256(self.dist / name))
            with tarfile.open(self.dist / name) as archive:
                self.assertTrue(archive.getmember(platform["bin"]).mode & 0o111)

    def test_chart_and_manifest_use_the_registry(self):
        with tarfile.open(self.dist / f"oarlock-{CHART_VERSION}.tgz") as archive:
            chart = yaml.safe_load(archive.extractfile("oarlock/Chart.yaml").read())
            values = yaml.safe_load(archive.extractfile("oarlock/values.yaml").read())
        self.assertEqual((chart["version"], chart["appVersion"], chart["home"]), (CHART_VERSION, VERSION, "https://forge.example.org/Example/oarlock"))
        images = {each["name"]: each["image"] for each in yaml.safe_load(chart["annotations"]["artifacthub.io/images"])}
        self.assertEqual(images["operator"], f"ghcr.io/example/oarlock/operator:{VERSION}")
        self.assertEqual(values["image"]["registry"], "ghcr.io/example")
        self.assertIn(f"image: ghcr.io/example/oarlock/operator:{VERSION}", self.read("install.yaml").replace('"', ""))

    def test_notes_have_changes_images_and_commands(self):
        notes = self.read("release-notes.md")
        self.assertTrue(notes.startswith("The first release.") or notes.startswith("### "), notes[:80])
        for suffix in ("operator:%s", "trainer:%s", "trainer:%s-cuda", "launcher:%s"):
            self.assertIn(f"| `ghcr.io/example/oarlock/{suffix % VERSION}` | `sha256:{'0' * 64}` |", notes)
        self.assertIn(f"helm install oarlock oci://ghcr.io/example/oarlock/charts/oarlock --version {CHART_VERSION} ", notes)

    def test_commands_that_publish_are_printed_in_order(self):
        commands = [line.split("dry run: ")[1] for line in self.output.splitlines() if "dry run: " in line]
        builds = [command for command in commands if command.startswith("docker buildx build ")]
        self.assertEqual(sorted((re.search(r"docker/(\w+)\.Dockerfile", each)[1], "VARIANT=cuda" in each, re.search(r"linux/(\w+)", each)[1]) for each in builds),
                         [("launcher", False, "amd64"), ("launcher", False, "arm64"), ("operator", False, "amd64"), ("operator", False, "arm64"),
                          ("trainer", False, "amd64"), ("trainer", False, "arm64"), ("trainer", True, "amd64"), ("trainer", True, "arm64")])
        for build in builds:
            for option in ("--attest type=sbom", "--attest type=provenance", "push-by-digest=true", f"--build-arg VERSION={VERSION}"):
                self.assertIn(option, build)
        last = [re.sub(r"^\S*/helm\S* push.*", "helm push", " ".join(command.split()[:3])) for command in commands[-14:]]
        signed = ["docker buildx imagetools", "cosign sign --yes"]
        self.assertEqual(last, [*signed * 4, "helm push", "cosign sign --yes", "cosign sign-blob --yes",
                                "gh release create", "gh release upload", "gh release edit"])
        upload = next(command for command in commands if command.startswith("gh release upload"))
        for name in self.read("SHA256SUMS").split()[1::2]:
            self.assertIn(f"/{name} ", upload)

    def test_only_the_preparation_of_machines_is_left_out(self):
        left_out = set(re.findall(r"^  left out: (.*) \(", self.output, re.M))
        self.assertEqual({re.sub(r"@.*", "", each) for each in left_out},
                         {"Install git", "Install the tools", "Install oras", "docker/setup-buildx-action", "sigstore/cosign-installer",
                          "Remove programs that are not used here", "Attest the provenance of the files"})


class Archive(unittest.TestCase):
    def test_same_sources_give_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            for directory in (first, second):
                result = release("--dry-run", "--out", directory, "archive", "--arch", "amd64", OARLOCK_BUILD_DIR_AMD64=str(BUILD))
                self.assertEqual(result.returncode, 0, result.stdout)
            for kind in ("tar.gz", "spdx.json"):
                name = f"oarlock_{VERSION}_linux_amd64.{kind}"
                self.assertEqual(sha256(pathlib.Path(first) / name), sha256(pathlib.Path(second) / name))

    def test_program_that_needs_libraries_is_rejected(self):
        with tempfile.TemporaryDirectory() as directory:
            result = release("--out", directory, "archive", "--arch", "amd64", OARLOCK_BUILD_DIR_AMD64=str(BUILD))
            self.assertEqual(result.returncode, 65, result.stdout)
            self.assertRegex(result.stdout, r"needs shared libraries that other distributions do not have: .*libfmt\.so")
            self.assertEqual(list(pathlib.Path(directory).iterdir()), [])

    def test_program_needs_only_libraries_that_archives_contain(self):
        dynamic = subprocess.run(["readelf", "--dynamic", BUILD / "bin/oarlock"], check=True, capture_output=True, text=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[([a-z+_-]+)", dynamic))
        # cmake/portable.cmake has a static library or the headers of each.
        self.assertLessEqual(needed, {"libyaml-cpp", "libfmt", "libssl", "libcrypto", "libstdc++", "libgcc_s", "libm", "libc", "ld-linux-x"})

    def test_program_uses_nothing_that_raises_the_version_of_glibc(self):
        # The static libstdc++ of an archive would need glibc 2.36 for it; this program has the shared one.
        self.assertNotIn("random_device", undefined_symbols(BUILD / "bin/oarlock"))

    def test_program_for_another_machine_is_rejected(self):
        with tempfile.TemporaryDirectory() as directory:
            result = release("--dry-run", "--out", directory, "archive", "--arch", "arm64", OARLOCK_BUILD_DIR_ARM64=str(BUILD))
            self.assertEqual(result.returncode, 65, result.stdout)
            self.assertIn("is for 'Advanced Micro Devices X86-64', not for arm64", result.stdout)


class Checks(unittest.TestCase):
    """Each test changes a copy of what scripts/release reads."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        shutil.copytree(ROOT / "scripts", self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("VERSION", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "charts/oarlock/Chart.yaml", "packaging/krew/oarlock.yaml"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.root / name)
        # As it is when a release is made.
        self.edit("CHANGELOG.md", f"## [{VERSION}] - Unreleased", f"## [{VERSION}] - 2026-01-31", required=False)
        self.edit("CODE_OF_CONDUCT.md", "[INSERT CONTACT METHOD]", "the office", required=False)

    def edit(self, name, old, new, required=True):
        text = (self.root / name).read_text()
        self.assertTrue(old in text or not required, f"{name} has no {old}")
        (self.root / name).write_text(text.replace(old, new))

    def expect(self, code, message, *arguments, **environment):
        result = release(*arguments, root=self.root, **environment)
        self.assertEqual((result.returncode, message in result.stdout), (code, True), result.stdout)

    def test_version_is_printed(self):
        self.assertEqual(release("version", "--tag", f"v{VERSION}", root=self.root).stdout, f"{VERSION}\n")

    def test_versions_must_agree(self):
        self.expect(65, f"the tag is 'v9.9.9', VERSION requires 'v{VERSION}'", "version", "--tag", "v9.9.9")
        self.edit("charts/oarlock/Chart.yaml", f"\nappVersion: {VERSION}", "\nappVersion: 9.9.9")
        self.expect(65, f"Chart.yaml: appVersion is '9.9.9', VERSION is '{VERSION}'", "version")
        (self.root / "VERSION").write_text("1.0\n")
        self.expect(65, "VERSION: '1.0' is not a semantic version", "version")

    def test_changelog_must_have_a_dated_section(self):
        self.edit("CHANGELOG.md", "2026-01-31", "Unreleased")
        self.expect(65, "has no date", "version")
        self.expect(0, "has no date yet", "--dry-run", "version")
        self.edit("CHANGELOG.md", f"## [{VERSION}]", "## [9.9.9]")
        self.expect(65, f"CHANGELOG.md: there is no section '## [{VERSION}] - DATE'", "--dry-run", "version")

    def test_contact_must_be_filled(self):
        self.edit("CODE_OF_CONDUCT.md", "the office", "[INSERT CONTACT METHOD]")
        self.expect(65, "CODE_OF_CONDUCT.md: replace '[INSERT CONTACT METHOD]' by the contact", "version")
        self.expect(0, "is not replaced yet", "--dry-run", "version")

    def test_missing_settings_and_files_are_named(self):
        self.expect(78, "OARLOCK_REGISTRY is not set", "--dry-run", "image", "operator", OARLOCK_REGISTRY="")
        self.expect(78, "OARLOCK_REPOSITORY_URL is not set", "--dry-run", "krew", OARLOCK_REPOSITORY_URL="")
        self.expect(66, "dist/oarlock_%s_linux_amd64.tar.gz does not exist: run scripts/release archive --arch amd64 first" % VERSION, "krew")
        self.expect(66, "digests/operator.amd64 does not exist: run scripts/release image operator first", "--dry-run", "index", "operator")
        self.expect(66, "there are no files", "--dry-run", "checksums")

    def test_wrong_arguments(self):
        for arguments in (["nothing"], ["image", "nothing"], ["image", "operator", "--arch", "riscv64"], ["archive", "--what"], ["publish"], ["--what"], []):
            with self.subTest(arguments=arguments):
                result = release(*arguments, root=self.root)
                self.assertEqual((result.returncode, "usage: scripts/release" in result.stdout), (64, True), result.stdout)

    def test_files_that_changed_are_not_published(self):
        (self.root / "dist").mkdir()
        (self.root / "dist/file").write_text("content")
        self.expect(0, "of 1 files", "--dry-run", "checksums")
        self.expect(0, "gh release create", "--dry-run", "publish", "--tag", f"v{VERSION}")
        (self.root / "dist/file").write_text("changed")
        self.expect(65, "have changed since scripts/release checksums", "--dry-run", "publish", "--tag", f"v{VERSION}")


if __name__ == "__main__":
    unittest.main()
