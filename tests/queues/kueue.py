"""What the tests of Kueue share: the path of modules, the programs, and their directory."""
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench" / "operator"))

from kueue_manager import GROUP, PODS_READY_TIMEOUT, Kueue  # noqa: E402, F401
from processes import run  # noqa: E402
from systems import ROOT  # noqa: E402


def evaluate(expression, environment=None):
    """The output of a command in the shell of scripts/lib/cluster/versions.sh."""
    return run(["bash", "-c", f"source scripts/lib/common.sh; source scripts/lib/cluster/versions.sh; {expression}"],
               cwd=ROOT, env={**os.environ, **(environment or {})}).strip()


def find_program(name, part, environment=None):
    """A program that scripts/setup PART has built."""
    found = evaluate(f"program {name}", environment)
    if not os.access(found, os.X_OK):
        sys.exit(f"error: {name} is not built: run scripts/setup {part}")
    return found


def temporary_directory(given):
    """`given`, which remains, or a new directory, which is removed."""
    if not given:
        return tempfile.TemporaryDirectory(prefix="oarlock-queues-")
    return _Kept(given)


class _Kept:
    def __init__(self, path):
        self._path = pathlib.Path(path).resolve()

    def __enter__(self):
        self._path.mkdir(parents=True)
        return self._path

    def __exit__(self, *_):
        pass
