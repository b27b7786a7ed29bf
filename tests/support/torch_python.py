"""Python programs with the PyTorch whose LibTorch the trainer uses (scripts/setup trainer), without the libraries of CUDA."""
import os
import pathlib
import subprocess

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oarlock"
# Libraries of CUDA that PyTorch is linked with. On the CPU it calls none of their functions, so that empty ones suffice.
CUDA = ["libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libcufft.so.12", "libcufile.so.0", "libcurand.so.10",
        "libcusparse.so.12", "libcusparseLt.so.0", "libnccl.so.2", "libnvshmem_host.so.3"]


def interpreter(environment, part):
    """The Python of the virtual environment that `scripts/setup <part>` installs."""
    python = CACHE / environment / "bin" / "python"
    assert python.exists(), f"{python} does not exist: run scripts/setup {part}"
    return python


def variables(work, *directories):
    """Writes the libraries into the directory `work`, and returns the environment of programs that can import torch, and the
    modules in the other directories. OARLOCK_TORCH_DIR is the directory of the package."""
    for name in CUDA:
        subprocess.run(["cc", "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-o", f"{work}/{name}", "-x", "c", "/dev/null"],
                       check=True)
    # Functions that are missing must not prevent that a library is loaded.
    pathlib.Path(work, "sitecustomize.py").write_text("import os, sys\nsys.setdlopenflags(os.RTLD_LAZY)\n")
    site = pathlib.Path(os.environ["OARLOCK_TORCH_DIR"]).parent
    return {**os.environ, "LD_LIBRARY_PATH": str(work), "PYTHONPATH": ":".join(map(str, (work, site, *directories))),
            "OMP_NUM_THREADS": "1"}
