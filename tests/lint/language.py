#!/usr/bin/env python3
"""Fails on words that mark non-idiomatic English in identifiers, comments, messages and documentation.

usage: language.py SOURCE_DIR [PATH...]

Without a PATH, it checks all files of the repository except those that language_unchecked.txt lists. With PATHs (files
or folders, relative to SOURCE_DIR), it checks exactly those. language_allowed.txt lists the legitimate uses.
"""
import bisect
import fnmatch
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CPP = (".h", ".cc", ".cu")
SKIPPED = ("tests/data/*", "tests/fuzz/corpus/*", "tests/lint/language*", "*.png", "*.svg", "*.sum", "LICENSE")

# Word or phrase (a regular expression; ~ is the space between words, also across two lines) -> what to write instead.
ADVICE = {
    "tell(?!~apart)|tells|told": "report, log, notify, specify",
    "said": "reported, specified",
    "says(?:~so)?|say~so": "report, state, log a warning",
    "knows": "has, defines, supports",
    "wants(?!_)": "requires, requests",
    "sees": "receives, reads, detects",
    "lives": "is in, exists",
    "believes|notices": "assumes, detects",
    "somebody|everybody": "another process, a user, all ranks",
    "goes~on|go~on|went~on": "continue, resume",
    "lies": "is, is stored",
    "stands(?!~(?:for|by)\\b)": "is, remains",
    "heard": "received",
    "ask|asks|asked|asking": "request, query, poll",
    "(?<!there )is~no(?!~(?:longer|later|more|less|larger|greater|op)\\b)": "is not a, does not exist",
    "nobody": "no client, no other process",
    "whoever": "any client that",
    "mend|mends|mended": "fix, repair",
    "but~for": "except for",
    "in~vain": "without success",
    "farewell": "close_notify alert",
    "reign": "leadership term",
    "(?-i:[Aa]new)": "again, from the start",
    "(?<!all )at~once": "immediately, together",
    "where~there~(?:is|are)": "if it exists",
    "that~(?:is|are)~there": "existing",
    "of~(?:its|their|one's)~own": "its own, dedicated, separate",
    "beside": "next to, in addition to",
}
# A word or phrase is also found as a part of a snake_case or CamelCase identifier: "GoesOn".
HUMP = r"(?-i:(?<=[a-z])(?=[A-Z]))"
PATTERNS = [(re.compile(rf"(?:(?<![A-Za-z])|{HUMP})(?:{words})(?-i:(?![a-z]))".replace("~", rf"(?:\s+|{HUMP})"), re.I), advice)
            for words, advice in ADVICE.items()]

TOKEN = re.compile(r"""
      //(?P<line>[^\n]*)
    | /\*(?P<block>.*?)\*/
    | \bR"(?P<delimiter>[^\s()\\]*)\((?P<raw>.*?)\)(?P=delimiter)"
    | "(?P<string>(?:[^"\\\n]|\\.)*)"
    | (?P<include>^[ \t]*\#[ \t]*include[^\n]*)
    | (?P<char>'(?:[^'\\\n]|\\.)')
    | (?P<name>[A-Za-z_]\w*)
    | (?P<code>[^\s])
""", re.X | re.S | re.M)
ESCAPE = re.compile(r"\\.", re.S)
PROSE = ("line", "block", "raw", "string", "name")


def cpp_words(text):
    """`text` with code other than names, comments and string literals replaced, every offset unchanged."""
    out = list(re.sub(r"\S", "\0", text))
    for token in TOKEN.finditer(text):
        kind = token.lastgroup
        if kind not in PROSE:
            continue
        begin, end = token.span(kind)
        content = token.group(kind)
        if kind == "string":
            content = ESCAPE.sub("  ", content)
        out[token.start():token.end()] = " " * (token.end() - token.start())
        out[begin:end] = content
        if kind == "name" and begin > 0 and out[begin - 1] not in "\0\n":
            out[begin - 1] = "\0"  # two names are no phrase
    return "".join(out)


def patch_words(text):
    """The description of a patch; its lines are those of another file."""
    end = text.find("\ndiff --git")
    return text if end < 0 else text[:end]


def text_words(text):
    """`text` without the signs that begin a line of a comment or a quotation, every offset unchanged."""
    return re.sub(r"(?m)^[ \t]*(?:#+|>)", lambda match: " " * len(match.group()), text)


def read_list(name):
    lines = (HERE / name).read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def read_allowed():
    """(glob of paths, phrase) of each legitimate use."""
    return [tuple(part.strip() for part in line.split(":", 1)) for line in read_list("language_allowed.txt")]


def spans(phrase, text):
    pattern = r"\s+".join(re.escape(word) for word in phrase.split())
    return [match.span() for match in re.finditer(pattern, text, re.I)]


def find(path, text, allowed=(), used=None):
    """Yields (line, found words, advice) for each flagged use in a file's text."""
    words = cpp_words(text) if path.endswith(CPP) else text_words(patch_words(text) if path.endswith(".patch") else text)
    permitted = []
    for entry in allowed:
        if fnmatch.fnmatch(path, entry[0]):
            for span in spans(entry[1], words):
                permitted.append((span, entry))
    starts = [0] + [match.end() for match in re.finditer("\n", text)]
    for pattern, advice in PATTERNS:
        for match in pattern.finditer(words):
            entries = [entry for (begin, end), entry in permitted if begin <= match.start() and match.end() <= end]
            if used is not None:
                used.update(entries)
            if not entries:
                yield bisect.bisect_right(starts, match.start()), " ".join(match.group().split()), advice


def tracked(root):
    out = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True,
                         capture_output=True, text=True)
    names = sorted(set(filter(None, out.stdout.split("\0"))))
    return [name for name in names if (root / name).is_file() and not any(fnmatch.fnmatch(name, glob) for glob in SKIPPED)]


def within(path, places):
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    places = [pathlib.PurePosixPath(place).as_posix() for place in sys.argv[2:]]
    unchecked, allowed, used = read_list("language_unchecked.txt"), read_allowed(), set()
    files = tracked(root)
    selected = [path for path in files if (within(path, places) or "." in places if places else not within(path, unchecked))]
    problems = []
    for path in selected:
        try:
            text = (root / path).read_text()
        except UnicodeDecodeError:
            continue
        problems += [f"{path}:{line}: \"{words}\": write: {advice}" for line, words, advice in find(path, text, allowed, used)]
    if not places:
        problems += [f"tests/lint/language_allowed.txt: \"{glob}: {phrase}\" permits nothing any more; remove it"
                     for glob, phrase in allowed if (glob, phrase) not in used and not within(glob, unchecked)]
        problems += [f"tests/lint/language_unchecked.txt: {place} does not exist" for place in unchecked
                     if not (root / place).exists()]
    print("\n".join(problems) or f"{len(selected)} files use the standard terms")
    sys.exit(1 if problems or not selected else 0)


if __name__ == "__main__":
    main()
