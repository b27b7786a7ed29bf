#!/usr/bin/env python3
"""Tests language.py with planted sentences."""
import unittest

import language


def found(path, text, allowed=()):
    return [(line, words) for line, words, _ in language.find(path, text, allowed)]


class LanguageTest(unittest.TestCase):
    def test_flags_comments(self):
        self.assertEqual(found("a.h", "int a;  // The leader tells the others.\n"), [(1, "tells")])
        self.assertEqual(found("a.cc", "/* first\n   Nobody waits. */\n"), [(2, "Nobody")])

    def test_flags_phrase_across_comment_lines(self):
        self.assertEqual(found("a.h", "// The pods are deleted at\n// once.\n"), [(1, "at once")])
        self.assertEqual(found("a.sh", "# It fails at\n# once.\n"), [(1, "at once")])

    def test_flags_messages(self):
        self.assertEqual(found("a.cc", 'log("this is no map");\n'), [(1, "is no")])
        self.assertEqual(found("a.cc", 'log("the job goes "\n    "on");\n'), [(1, "goes on")])
        self.assertEqual(found("a.cc", 'log(R"(said)");\n'), [(1, "said")])
        self.assertEqual(found("a.cc", 'log("line\\nheard");\n'), [(1, "heard")])

    def test_flags_identifiers(self):
        self.assertEqual(found("a.cc", "int x = told_;\nHeard h;\nvoid ask_rank();\n"),
                         [(1, "told"), (2, "Heard"), (3, "ask")])
        self.assertEqual(found("a.cc", "TEST(Run, LostStepsAreTold) {}\nTEST(Run, GoesOnAtOnce) {}\nint MASKED, kTask;\n"),
                         [(1, "Told"), (2, "GoesOn"), (2, "AtOnce")])

    def test_flags_documentation(self):
        for text in ("The rank stands still.\n", "> It waits\n> in vain.\n", "| a | a directory of its own |\n", "name: beside it\n"):
            self.assertEqual(len(found("a.md", text)), 1, text)

    def test_flags_each_listed_word(self):
        for text in ("tell", "told", "said", "says so", "says", "knows", "wants", "sees", "lives", "believes", "notices",
                     "somebody", "everybody", "goes on", "lies", "stands", "heard", "asks", "is no file", "nobody", "whoever",
                     "mend", "but for", "in vain", "farewell", "reign", "anew", "at once", "where there is", "that is there",
                     "of its own", "beside"):
            self.assertEqual([words for _, words in found("a.md", text + "\n")], [text.removesuffix(" file")])

    def test_accepts_standard_uses(self):
        for text in ("it is no longer used", "stands for", "there is no webhook", "all problems are reported all at once", "to tell apart",
                     "besides", "task", "masked", "families", "foretold", "a mending", "understands"):
            self.assertEqual(found("a.md", text + "\n"), [], text)

    def test_ignores_code(self):
        self.assertEqual(found("a.cc", '#include "x/said.h"\nif (goes) on();\nchar c = \'"\';\nint at; once();\n'), [])

    def test_ignores_lines_of_patches(self):
        self.assertEqual(found("a.patch", "Bug: it is told twice\n\ndiff --git a/x b/x\n // told\n"), [(1, "told")])

    def test_accepts_allowed_phrases_only(self):
        allowed = [("docs/*", "a model of its own")]
        self.assertEqual(found("docs/a.md", "a model\nof its own, and a file of its own\n", allowed), [(2, "of its own")])
        self.assertEqual(found("README.md", "a model of its own\n", allowed), [(1, "of its own")])


if __name__ == "__main__":
    unittest.main()
