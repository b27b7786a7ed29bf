#!/usr/bin/env python3
"""The C ABI of oarlock::ddp: a program in C99 and the binding of examples/ddp/binding.py, on one rank and on two; and the symbols of
the library. With --pytorch, the binding with PyTorch for Python, which trains a module of torch.nn."""
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["OARLOCK_SOURCE"])
BUILD = pathlib.Path(os.environ["OARLOCK_BUILD"])
TORCH = pathlib.Path(os.environ["OARLOCK_TORCH_DIR"]) / "lib"
LIBRARY = BUILD / "ddp/liboarlock_ddp_c.so"
MINE = SOURCE / "tests/integration/ddp/c_abi"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def run_ranks(command, ranks, **environment):
    """Returns what the ranks printed. Without ranks, the environment has no variables of a launcher."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": str(TORCH), **environment}
    if ranks > 1:
        environment |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    running = [subprocess.Popen(command, env={**environment, "RANK": str(rank)} if ranks > 1 else environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(ranks)]
    outputs = [process.communicate(timeout=300) for process in running]
    assert all(process.returncode == 0 for process in running), (command, outputs)
    return "".join(output for output, _ in outputs)


def check_symbols():
    """Only the functions of the header are exported, and each of them."""
    declared = set(re.findall(r"\b(oarlock_ddp_\w+)\(", re.sub(r"/\*.*?\*/", "", (SOURCE / "ddp/oarlock_ddp.h").read_text(), flags=re.S)))
    exported = {line.split()[-1] for line in run(["nm", "-D", "--defined-only", LIBRARY]).splitlines()}
    assert exported == declared and len(declared) > 20, exported ^ declared
    needed = re.findall(r"NEEDED\s+(\S+)", run(["objdump", "-p", LIBRARY]))
    assert all(re.fullmatch(r"lib(torch_cpu|c10|stdc\+\+|gcc_s|c|m)\.so[.\d]*|ld-linux[-\w]*\.so[.\d]*", name) for name in needed), needed


def check_c(directory):
    program = directory / "program"
    run(["cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", SOURCE / "ddp", MINE / "program.c", "-o", program,
         LIBRARY, BUILD / "tests/integration/ddp/liboarlock_test_binding.so", "-lm",
         f"-Wl,-rpath,{BUILD / 'ddp'}:{BUILD / 'tests/integration/ddp'}", "-Wl,--allow-shlib-undefined"])
    for ranks in (1, 2, 3):
        assert run_ranks([program], ranks) == "ok\n" * ranks
    assert run_ranks([program, free_port()], 1) == "ok\n"


def check_python(python, expects_torch):
    one, two = (run_ranks([python, SOURCE / "examples/ddp/binding.py", LIBRARY], ranks) for ranks in (1, 2))
    assert re.findall(r"line (.*)", one + two) == ["3.000000 x + -2.000000"] * 3, one + two
    sums = [float(number) for number in re.findall(r"module (.*)", two)]
    assert len(sums) == (2 if expects_torch else 0) and len(set(sums)) <= 1, two


def main():
    if sys.argv[1:] == ["--pytorch"]:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
        check_python(cache / "oarlock/python-torch-2.11.0/bin/python", expects_torch=True)
        return
    check_symbols()
    with tempfile.TemporaryDirectory() as name:
        check_c(pathlib.Path(name))
    check_python(sys.executable, expects_torch=False)


if __name__ == "__main__":
    main()
