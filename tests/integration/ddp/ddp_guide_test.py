#!/usr/bin/env python3
"""Executes docs/guides/ddp.md: examples/ddp builds against the installed component "ddp" alone, which was moved and does not refer to
the checkout, and two ranks compute what one process computes with the joined batch.
"""
import os
import pathlib
import re
import subprocess
import tempfile

SOURCE = pathlib.Path(os.environ["OARLOCK_SOURCE"])
BUILD = pathlib.Path(os.environ["OARLOCK_BUILD"])
TORCH = pathlib.Path(os.environ["OARLOCK_TORCH_DIR"])
ME = "executed by tests/integration/ddp/ddp_guide_test.py"
BLOCK = re.compile(r"^<!-- ([^\n]*) -->\n```sh\n(.*?)^```$", re.M | re.S)
RESULT = re.compile(r"ranks (\d+), test loss ([\d.]+), accuracy ([\d.]+)")
# Libraries of LibTorch, and of the compiler and the C library.
MAY_NEED = re.compile(r"lib(torch_cpu|c10|stdc\+\+|gcc_s|c|m)\.so[.\d]*|ld-linux[-\w]*\.so[.\d]*")


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(script, checkout, environment):
    script = script.replace("MASTER_PORT=29500", f"MASTER_PORT={free_port()}")
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=checkout, env=environment, capture_output=True, text=True,
                          timeout=500, check=False)
    assert done.returncode == 0, f"{script}ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def prepare(work):
    """A home directory with the LibTorch of this build, and what the page uses of a checkout."""
    checkout = work / "oarlock-source"
    (checkout / "build").mkdir(parents=True)
    (checkout / "examples").symlink_to(SOURCE / "examples")
    (checkout / "build/release").symlink_to(BUILD)
    torch = work / ".cache/oarlock/torch-2.11.0"
    torch.mkdir(parents=True)
    (torch / "torch").symlink_to(TORCH)
    environment = {**os.environ, "HOME": str(work), "XDG_CACHE_HOME": str(work / ".cache"), "OMP_NUM_THREADS": "1",
                   "PATH": f"{os.environ['OARLOCK_BIN']}:{os.environ['PATH']}"}
    # Headers of the program with the names of ours.
    for header in ("common/error.h", "ddp/options.h"):
        (work / "own" / header).parent.mkdir(parents=True, exist_ok=True)
        (work / "own" / header).write_text(f'#error "{header} takes the place of a header of Oarlock"\n')
    environment["CXXFLAGS"] = f"-I{work}/own"
    if cache := subprocess.run(["sh", "-c", "ccache --get-config cache_dir"], capture_output=True, text=True, check=False).stdout.strip():
        environment |= {"CCACHE_DIR": cache, "CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": str(work), "CCACHE_NOHASHDIR": "1"}
    return checkout, environment


def check_prefix(prefix):
    """The tree names neither the checkout nor the build, and contains every header of ours that its headers include."""
    for path in [*prefix.rglob("*.h"), *prefix.rglob("*.cmake")]:
        text = path.read_text()
        assert str(SOURCE) not in text and str(BUILD) not in text, f"{path} names the checkout or the build directory"
        assert not re.search(r'^#include "', text, re.M), f"{path} includes a header that a file of the program could replace"
        for header in re.findall(r"^#include <(oarlock/[^>]+)>", text, re.M):
            assert (prefix / "include" / header).exists(), f"{path} includes {header}, which is not installed"
        assert not re.search(r"<(fmt|spdlog|yaml-cpp|prometheus|boost|openssl)/", text), f"{path} includes another library"
    assert not (prefix / "include/oarlock/trainer").exists() and not list(prefix.rglob("liboarlock_common.a"))


def check_needed(program):
    needed = re.findall(r"NEEDED\s+(\S+)", subprocess.run(["objdump", "-p", program], capture_output=True, text=True, check=True).stdout)
    others = [library for library in needed if not MAY_NEED.fullmatch(library)]
    assert needed and not others, f"{program} needs {others} in addition to LibTorch"


def output_of(line, outputs):
    """The output of the one block that has a line which begins so."""
    found = [output for script, output in outputs.items() if any(one.startswith(line) for one in script.splitlines())]
    assert len(found) == 1, f"{len(found)} blocks of the page have the line {line}"
    return found[0]


def check_script(launched, alone):
    """Two ranks compute what one process computes with the joined batch, and the module keeps the names of Python."""
    two, one = (re.search(r"ranks (\d), loss ([\d.]+), accuracy ([\d.]+), first parameter 0.weight", output) for output in (launched, alone))
    assert two[1] == "2" and one[1] == "1" and float(one[3]) > 0.95, (launched, alone)
    assert abs(float(one[2]) - float(two[2])) < 1e-3, (launched, alone)


def main():
    blocks = [script for comment, script in BLOCK.findall((SOURCE / "docs/guides/ddp.md").read_text()) if comment == ME]
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        checkout, environment = prepare(work)
        (checkout / "build/net.pt").symlink_to(SOURCE / "tests/data/ddp_script_model.pt")
        outputs = {}
        for script in blocks:
            outputs[script] = run(script, checkout, environment)
            print(f"ok: {script.splitlines()[0]}", flush=True)
            if len(outputs) == 1:
                (work / "oarlock").rename(work / "moved")
                (work / "oarlock").symlink_to(work / "moved")
                check_prefix(work / "moved")
        check_needed(checkout / "build/ddp/mnist")
        check_needed(checkout / "build/ddp/mnist-pkg-config")
        from_pkg_config = run("build/ddp/mnist-pkg-config data 0", checkout, environment)
        assert RESULT.search(from_pkg_config)[1] == "1", from_pkg_config
        recovered = output_of("oarlock launch --nproc 2 --max-restarts", outputs)
        weights = dict(re.findall(r"rank (\d), weights (\w+)", recovered))
        assert len(weights) == 2 and len(set(weights.values())) == 1, recovered
        one, two, launched = (RESULT.search(output_of(line, outputs)) for line in (
            "build/ddp/mnist data 20", "RANK=0 build/ddp/mnist", "oarlock launch --nproc 2 -- build/ddp/mnist"))
        assert one[1] == "1" and two[1] == "2" and launched[1] == "2", outputs
        loss, accuracy = float(one[2]), float(one[3])
        assert loss < 1.0 and accuracy > 0.6, one[0]
        for other in (two, launched):  # sums in another order; ddp_module_test compares in double precision
            assert abs(float(other[2]) - loss) < 1e-3 * loss and abs(float(other[3]) - accuracy) < 0.002, (one[0], other[0])
        print(one[0], two[0], sep="\n")
        check_script(output_of("oarlock launch --nproc 2 -- build/ddp/script", outputs),
                     run("build/ddp/script build/net.pt", checkout, environment))
        played = output_of("oarlock launch --nproc 2 -- build/ddp/policy_value", outputs)
        score = re.search(r"ranks 2, score before (\S+), after (\S+)", played)
        assert float(score[2]) > max(0.6, float(score[1]) + 0.2), played
        bound = output_of("LD_LIBRARY_PATH=", outputs)
        assert "line 3.000000 x + -2.000000" in bound, bound


main()
