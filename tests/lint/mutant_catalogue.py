#!/usr/bin/env python3
"""Fails on a mutant of tests/mutants/catalogue that no longer applies to the sources, or that names an unregistered test.

usage: mutant_catalogue.py SOURCE_DIR BUILD_DIR
"""
import pathlib
import sys

root = pathlib.Path(sys.argv[1])
sys.path += [str(root / "tests" / "lint"), str(root / "tests" / "mutants")]
import catalogue  # noqa: E402
from test_registration import registered  # noqa: E402

FEWEST = 50


def problems_of(mutant, names):
    if problem := catalogue.apply(mutant, root, "--check"):
        yield f"the patch no longer applies: {problem}"
    for call in mutant.tests:
        if call.name not in names:
            yield f"{call.name} is not a registered test"


def main():
    names = registered(sys.argv[2])
    mutants = catalogue.read_all()
    found = [f"{mutant.name}: {problem}" for mutant in mutants for problem in problems_of(mutant, names)]
    for problem in found:
        print(problem)
    if len(mutants) < FEWEST:
        print(f"the catalogue has {len(mutants)} mutants; it needs {FEWEST}")
    print(f"{len(mutants)} mutants, {len(found)} problems; change the patch together with the code that it mutates")
    sys.exit(1 if found or len(mutants) < FEWEST else 0)


if __name__ == "__main__":
    main()
