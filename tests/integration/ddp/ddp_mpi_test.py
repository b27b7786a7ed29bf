#!/usr/bin/env python3
"""examples/ddp/mpi.cc with a double of MPI (mpi/mpi.h): the ranks of a communicator connect without any variable of a launcher."""
import os
import pathlib
import re
import subprocess
import tempfile

PROGRAM = pathlib.Path(os.environ["OARLOCK_BUILD"]) / "tests/integration/ddp/oarlock_mpi_example"
LINE = re.compile(r"rank (\d) of (\d), local rank (\d), sum of weights ([\d.]+)")


def run_ranks(ranks, **environment):
    with tempfile.TemporaryDirectory() as directory:
        for rank in range(1, ranks):
            os.mkfifo(f"{directory}/{rank}")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "DOUBLE_SIZE": str(ranks), "DOUBLE_DIRECTORY": directory, **environment}
        running = [subprocess.Popen([PROGRAM], env={**environment, "DOUBLE_RANK": str(rank)}, text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE) for rank in range(ranks)]
        return [(*process.communicate(timeout=120), process.returncode) for process in running]


def main():
    sums = set()
    for ranks in (1, 2, 4):
        for rank, (output, errors, code) in enumerate(run_ranks(ranks)):
            found = LINE.fullmatch(output.strip())
            assert code == 0 and found, (output, errors, code)
            assert found.group(1, 2, 3) == (str(rank), str(ranks), str(rank)), output
            sums.add(found[4])
    assert len(sums) == 1, sums  # the joined batch of all ranks is the same
    for _, errors, code in run_ranks(2, MASTER_ADDR="a name that is too long " * 20):  # no rank waits for rank 0
        assert code == 1 and "rank 0 has no host name or free port" in errors, errors


main()
