#!/usr/bin/env python3
"""Tests the parts of scripts/lib/release that need no build.

usage: release_tools_test.py SOURCE_DIR
"""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "scripts/lib/release"))
import changelog  # noqa: E402
import packages  # noqa: E402
import run_workflow  # noqa: E402
import stage_chart  # noqa: E402

CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0-rc.1] - 2026-03-01

### Added

#### Operator
- The field `spec.queue`
  ([docs](docs/x.md)).

### Fixed
- A crash.

### Known limitations
- None.

## [0.1.0] - 2026-01-01

### Added
- Everything.
"""


class Changelog(unittest.TestCase):
    def test_section_ends_at_next_version(self):
        self.assertEqual(changelog.section(CHANGELOG, "0.1.0"), "### Added\n- Everything.")
        self.assertIn("A crash.", changelog.section(CHANGELOG, "0.2.0-rc.1"))
        self.assertNotIn("Everything", changelog.section(CHANGELOG, "0.2.0-rc.1"))
        self.assertIsNone(changelog.section(CHANGELOG, "0.2.0"))

    def test_notes_have_whole_links_and_unbroken_paragraphs(self):
        self.assertIn("\n- The field `spec.queue` ([docs](https://f/blob/v1/docs/x.md)).\n", changelog.notes(CHANGELOG, "0.2.0-rc.1", "https://f/blob/v1"))
        self.assertEqual(changelog.notes("## [1.0.0] - 2026-01-01\na\nb [c](https://d)\n\n- e\n- f\n", "1.0.0", "x"), "a b [c](https://d)\n\n- e\n- f")
        self.assertIsNone(changelog.notes(CHANGELOG, "9.9.9", "x"))

    def test_well_formed_changelog_has_no_problems(self):
        self.assertEqual(changelog.problems(CHANGELOG), [])

    def test_reports_each_problem(self):
        for old, new, problem in [
                ("## [0.1.0] - 2026-01-01", "## 0.1.0 - 2026-01-01", "line 19: '## 0.1.0 - 2026-01-01' is not '## [VERSION] - DATE'"),
                ("2026-01-01", "2026-13-01", "line 19: the date of 0.1.0 is not YYYY-MM-DD"),
                ("2026-01-01", "Unreleased", "line 19: the date of 0.1.0 is not YYYY-MM-DD"),
                ("2026-01-01", "2026-04-01", "dates are not in descending order"),
                ("[0.1.0]", "[0.3.0]", "versions are not unique and in descending order: 0.2.0-rc.1, 0.3.0"),
                ("0.2.0-rc.1", "0.1.0-rc.1", "versions are not unique and in descending order: 0.1.0-rc.1, 0.1.0"),
                ("- Everything.", "Everything.", "the section of 0.1.0 has no change"),
                ("### Fixed", "### Bugs", "line 13: 'Bugs' is not one of"),
        ]:
            with self.subTest(new=new):
                found = changelog.problems(CHANGELOG.replace(old, new))
                self.assertTrue(any(each.startswith(problem) for each in found), found)

    def test_first_version_may_be_unreleased(self):
        self.assertEqual(changelog.problems(CHANGELOG.replace("2026-03-01", "Unreleased")), [])


class Expressions(unittest.TestCase):
    CONTEXTS = {"github": {"event_name": "push", "repository_owner": "Example"}, "vars": {}, "env": {"A": "1"},
                "needs": {"a": {"result": "success"}, "b": {"result": "failure"}}}

    def test_values(self):
        for text, value in [
                ("github.event_name != 'push'", False), ("github.event_name == 'PUSH'", True), ("vars.REGISTRY", None),
                ("vars.REGISTRY || format('ghcr.io/{0}', github.repository_owner)", "ghcr.io/Example"),
                ("github.event_name == 'push' && 'yes' || 'no'", "yes"), ("!vars.X", True), ("'it''s'", "it's"),
                ("!(github.event_name == 'push') || env.A == '1'", True), ("join(needs.*.result, ' ')", "success failure"),
                ("always()", True), ("contains(github.event_name, 'US')", True)]:
            with self.subTest(text=text):
                self.assertEqual(run_workflow.Expression(text, self.CONTEXTS).evaluate(), value)

    def test_errors(self):
        for text in ["github.event_name ==", "nothing.x", "toJSON(github)", "a b", "'open", "(true", "1 + 2"]:
            with self.subTest(text=text), self.assertRaises(run_workflow.RehearsalError):
                run_workflow.Expression(text, self.CONTEXTS).evaluate()

    def test_fill_writes_booleans_as_the_forge_does(self):
        self.assertEqual(run_workflow.fill("x-${{ github.event_name == 'push' }}-${{ vars.X }}-", self.CONTEXTS), "x-true--")


class Workflows(unittest.TestCase):
    def rehearse(self, text):
        """(error or None, output) of a rehearsal of this workflow."""
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            (directory / "workflow.yaml").write_text(text)
            (directory / "file").write_text("content")
            output = io.StringIO()
            with contextlib.redirect_stdout(output), mock.patch.object(
                    run_workflow, "copy_working_tree", lambda root, target: target.mkdir()):
                try:
                    run_workflow.Rehearsal(directory, directory / "workflow.yaml", directory / "work", "v1.2.3").run()
                except run_workflow.RehearsalError as error:
                    return str(error), output.getvalue()
            return None, output.getvalue()

    def test_outputs_and_artifacts_reach_later_jobs(self):
        error, output = self.rehearse("""
name: W
env: {TAG: "${{ github.ref_name }}"}
jobs:
  last:
    needs: [first]
    steps:
      - uses: actions/checkout@v1
      - uses: actions/download-artifact@v1
        with: {pattern: a-*, path: in, merge-multiple: true}
      - run: |
          cat in/x in/y
          echo "${{ needs.first.outputs.word }}"
  first:
    strategy: {matrix: {letter: [x, y]}}
    outputs: {word: "${{ steps.s.outputs.word }}"}
    steps:
      - uses: actions/checkout@v1
      - id: s
        run: |
          mkdir out
          echo "$TAG ${{ matrix.letter }}" >out/${{ matrix.letter }}
          echo "word=done" >>"$GITHUB_OUTPUT"
      - uses: actions/upload-artifact@v1
        with: {name: "a-${{ matrix.letter }}", path: out/}
""")
        self.assertIsNone(error, output)
        self.assertIn("    v1.2.3 x\n    v1.2.3 y\n    done\n", output)

    def test_steps_that_change_the_machine_are_left_out(self):
        error, output = self.rehearse("""
name: W
jobs:
  a:
    steps:
      - uses: actions/checkout@v1
      - run: apt-get update && apt-get install nothing
      - uses: some/action@v1
      - name: never
        if: github.event_name == 'push'
        run: exit 1
""")
        self.assertIsNone(error)
        self.assertEqual(output.count("left out"), 3)

    def test_failures(self):
        for steps, message in [
                ("[{uses: actions/checkout@v1}, {name: F, run: 'true; exit 3'}]", "step 'F' ended with 3"),
                ("[{uses: actions/checkout@v1}, {name: F, run: 'false | true'}]", "step 'F' ended with 1"),
                ("[{uses: actions/checkout@v1}, {name: F, run: 'echo x; docker push y'}]", "step 'F' ended with 99"),
                ("[{uses: actions/checkout@v1}, {name: F, run: 'exit 0', shell: bash}]", "step 'F': the rehearsal does not know 'shell'"),
                ("[{uses: actions/checkout@v1}, {uses: actions/upload-artifact@v1, with: {name: a, path: b}}]", "there are no files in b"),
                ("[{uses: actions/checkout@v1}, {uses: actions/download-artifact@v1, with: {pattern: a, path: b, merge-multiple: true}}]", "no artifact has a name such as a"),
        ]:
            with self.subTest(steps=steps):
                error, output = self.rehearse(f"name: W\njobs: {{a: {{steps: {steps}}}}}\n")
                self.assertIn(message, error or "", output)

    def test_unknown_keys_and_circles_are_errors(self):
        self.assertIn("does not know 'if'", self.rehearse("name: W\njobs: {a: {if: always(), steps: []}}\n")[0])
        self.assertIn("need each other", self.rehearse("name: W\njobs: {a: {needs: b, steps: []}, b: {needs: a, steps: []}}\n")[0])


class Chart(unittest.TestCase):
    def test_registry_of_each_image_is_set(self):
        before = "image:\n  # Comment.\n  registry: docker.io\n  repository: oarlock/operator\n  tag: \"\"\ntrainerImage:\n  repository: oarlock/trainer\nother:\n  registry: x\n"
        after = "image:\n  # Comment.\n  registry: r.example.org/t\n  repository: oarlock/operator\n  tag: \"\"\ntrainerImage:\n  repository: r.example.org/t/oarlock/trainer\nother:\n  registry: x\n"
        self.assertEqual(stage_chart.use_registry(before, "r.example.org/t"), after)

    def test_images_and_links_of_the_metadata_are_set(self):
        before = "home: https://f.example.org/a\nx: |\n  image: docker.io/oarlock/operator:1\n  url: https://f.example.org/a/b\n"
        self.assertEqual(stage_chart.use_addresses(before, "r/t", "https://g.example.org/c"),
                         "home: https://g.example.org/c\nx: |\n  image: r/t/oarlock/operator:1\n  url: https://g.example.org/c/b\n")

    def test_chart_without_our_images_is_an_error(self):
        with self.assertRaises(SystemExit):
            stage_chart.use_registry("image:\n  repository: other/operator\n", "r")


class Packages(unittest.TestCase):
    def test_sysroot_is_in_the_rules_of_ninja(self):
        with tempfile.TemporaryDirectory() as directory:
            build = pathlib.Path(directory)
            (build / "CMakeFiles").mkdir()
            (build / "build.ninja").write_text("build a.o: CXX_COMPILER a.cc\n")
            (build / "CMakeFiles/rules.ninja").write_text("rule CXX_COMPILER\n  command = g++ --sysroot=/arm64 $in\n")
            (build / "CMakeCache.txt").write_text("CMAKE_BUILD_TYPE:STRING=Release\n")
            self.assertIsNone(packages.sysroot_of(build))
            (build / "CMakeCache.txt").write_text("CMAKE_TOOLCHAIN_FILE:FILEPATH=arm64.cmake\n")
            self.assertEqual(packages.sysroot_of(build), pathlib.Path("/arm64"))

    def test_locator_has_version_architecture_and_source(self):
        options = mock.Mock(version="1.2.3", url="", created="2026-01-01T00:00:00Z", arch="arm64")
        options.name = "archive"
        document = packages.spdx(options, {("libfmt-dev", "9.1.0+ds1-2", "fmtlib")})
        self.assertEqual(document["packages"][1]["externalRefs"][0]["referenceLocator"],
                         "pkg:deb/debian/libfmt-dev@9.1.0%2Bds1-2?arch=arm64&distro=debian-12&upstream=fmtlib")
        self.assertEqual([each["relationshipType"] for each in document["relationships"]], ["DESCRIBES", "DEPENDS_ON"])


if __name__ == "__main__":
    unittest.main()
