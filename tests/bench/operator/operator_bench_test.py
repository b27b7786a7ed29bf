#!/usr/bin/env python3
"""Runs scripts/bench operator's parts that need no rival with tiny numbers: whether they work, not how fast.

usage: operator_bench_test.py DIRECTORY_WITH_PROGRAMS
"""
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
JOBS, PODS = 3, 40


def main():
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "bench.json")
        subprocess.run([sys.executable, HERE / "benchmark.py", "--bin", sys.argv[1], "--only", "create,alone,memory",
                        "--jobs", str(JOBS), "--pairs", "1", "--cache-pods", str(PODS), "--rest", "2", "--json", file],
                       check=True)
        results = json.loads(file.read_text())
    (pair,) = results["create"][str(JOBS)]
    assert pair["raw"]["seconds"] > 0 and pair["ours"]["seconds"] > 0, pair
    alone = results["alone"]
    assert alone["created"] > 0 and alone["cpu"] > 0 and alone["cold_start"] > 0, alone
    assert alone["rest_writes"] == 0, "the operator writes although nothing changes"
    # A job is a Service and four pods: their creation and a few status patches, but no second creation.
    assert alone["requests"]["create pods"] == 4 and alone["requests"]["create services"] == 1, alone["requests"]
    assert alone["requests_per_job"] >= 5, alone
    memory = results["memory"]
    assert memory["relist"] in ("list", "watch list") and 5 < memory["rss_after_relist"] < 500, memory
    assert any(cell == "reached" or cell == "missed" for row in results["table"] for cell in row)
    print("every part measures")


if __name__ == "__main__":
    main()
