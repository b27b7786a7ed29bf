#!/usr/bin/env python3
"""Fails on a mutant of tests/mutants/catalogue that no longer applies to the sources, that names an unregistered test, or that
breaks no invariant of tests/mutants/invariants.txt; and on an invariant that is not broken by one or two mutants.

usage: mutant_catalogue.py SOURCE_DIR BUILD_DIR
"""
import pathlib
import sys

root = pathlib.Path(sys.argv[1])
sys.path += [str(root / "tests" / "lint"), str(root / "tests" / "mutants")]
import catalogue  # noqa: E402
from test_registration import registered  # noqa: E402

MAX_MUTANTS = 2  # of an invariant


def problems_of(mutant, names):
    if problem := catalogue.apply(mutant, root, "--check"):
        yield f"the patch no longer applies: {problem}"
    for call in mutant.tests:
        if call.name not in names:
            yield f"{call.name} is not a registered test"


def problems_of_invariants(mutants):
    listed = [name for names in catalogue.invariants().values() for name in names]
    for invariant, names in catalogue.invariants().items():
        if not 1 <= len(names) <= MAX_MUTANTS:
            yield f"'{invariant}' has {len(names)} mutants"
    existing = {mutant.name for mutant in mutants}
    yield from (f"{name} is not in the catalogue, or is listed twice" for name in {*listed} if name not in existing or listed.count(name) > 1)
    yield from (f"{name} breaks no invariant" for name in existing - {*listed})


def main():
    names = registered(sys.argv[2])
    mutants = catalogue.read_all()
    found = [f"{mutant.name}: {problem}" for mutant in mutants for problem in problems_of(mutant, names)]
    found += [f"tests/mutants/invariants.txt: {problem}" for problem in problems_of_invariants(mutants)]
    for problem in found:
        print(problem)
    print(f"{len(mutants)} mutants, {len(found)} problems; change the patch together with the code that it mutates")
    sys.exit(1 if found or not mutants else 0)


if __name__ == "__main__":
    main()
