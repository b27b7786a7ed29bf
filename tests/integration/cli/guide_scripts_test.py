#!/usr/bin/env python3
"""Python DDP scripts in the style of five published guides (guide_scripts/), unchanged under `oarlock launch`.

usage: guide_scripts_test.py   (OARLOCK_BIN: the directory of the programs)

Each script runs with two ranks on one node, and on two nodes that this machine simulates. A rank kills itself after the first checkpoint. The
launchers start the processes again in place, and the script continues from its checkpoint.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))

from reserved_port import ReservedPort  # noqa: E402

BIN = pathlib.Path(os.environ["OARLOCK_BIN"])
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oarlock"
LIMIT = 300  # seconds for a run

# The progress that a script prints when it starts, before and after the failure.
SCRIPTS = {
    "gears.py": ("starts at epoch 0", "starts at epoch 1"),
    "comformer.py": ("starts at epoch 0", "starts at epoch 1"),
    "quantumgrav.py": ("starts at epoch 0", "starts at epoch 1"),
    "training_engine.py": ("starts at epoch 0", "starts at epoch 1"),
    "sedd.py": ("starts at step 0", "starts at step 4"),
}


PYTHON = CACHE / "python-torch-2.11.0" / "bin" / "python"
if not PYTHON.exists():
    sys.exit(f"{PYTHON} does not exist: run scripts/setup bench")


def environment(crash_rank):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OARLOCK_", "PET_", "TORCHELASTIC_"))}
    return {**kept, "OARLOCK_REGROUP_TOKEN": "a token of this test", "CRASH_RANK": str(crash_rank), "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1"}


class GuideScripts(unittest.TestCase):
    def run_script(self, script, crash_rank, launchers):
        """Returns the output of all launchers, whose options are given."""
        with tempfile.TemporaryDirectory(prefix="oarlock-guide-") as directory:
            processes = [subprocess.Popen([BIN / "oarlock", "launch", *options, "--max-restarts", "2", "--", PYTHON, HERE / "guide_scripts" / script],
                                          cwd=directory, env=environment(crash_rank), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True) for options in launchers]
            output = ""
            try:
                for process in processes:
                    output += process.communicate(timeout=LIMIT)[0]
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
            self.assertEqual([process.returncode for process in processes], [0] * len(processes), output)
            self.assertTrue((pathlib.Path(directory) / "crashed").exists(), output)
            self.assertGreater((pathlib.Path(directory) / "model.pt").stat().st_size, 0)
            return output

    def require_restart_in_place(self, script, output):
        before, after = SCRIPTS[script]
        self.assertEqual(output.count(f"{before} with 2 ranks"), 1, output)
        self.assertEqual(output.count(f"{after} with 2 ranks"), 1, output)
        self.assertIn("restart 1 of 2", output)
        self.assertNotIn("restart 2 of 2", output)

    def test_one_node(self):
        for script in SCRIPTS:
            with self.subTest(script):
                self.require_restart_in_place(script, self.run_script(script, 1, [["--nproc", "2", "--standalone"]]))

    def test_two_nodes(self):
        for script in SCRIPTS:
            with self.subTest(script), ReservedPort(2) as port:
                nodes = [["--nproc", "1", "--nnodes", "2", "--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port)]
                         for node in range(2)]
                self.require_restart_in_place(script, self.run_script(script, 0, nodes))


if __name__ == "__main__":
    unittest.main(verbosity=2)
