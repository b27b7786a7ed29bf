#!/usr/bin/env python3
"""Runs the configure step of docker/*.Dockerfile as the Dockerfile has it, for each variant, without a container engine.

usage: docker_build.py SOURCE_DIR

The step has only what the Dockerfile copies (by its .dockerignore), installs and passes to cmake: its commands run in a
clean directory whose /source, /libtorch and /build replace those of the image. LibTorch is taken from the cache of
scripts/setup build. Empty files replace CUDA's headers, one for each wheel that the Dockerfile installs; the
versions of the wheels must be those of scripts/lib/setup_cuda.sh.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# A header of each wheel, at the place where the wheel has it.
HEADERS = {
    "nvidia-nccl-cu13": "nvidia/nccl/include/nccl.h",
    "nvidia-cuda-crt": "nvidia/cu13/include/crt/host_config.h",
    "nvidia-cuda-cccl": "nvidia/cu13/include/cccl/cuda/std/version",
}


def instructions(text):
    """(keyword, rest) of each instruction, with continued lines joined."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def copy_context(root, ignore, target):
    """The build context: .dockerignore excludes all, then names what is in it."""
    for line in ignore.read_text().splitlines():
        if line.startswith("!"):
            name = line[1:]
            source, copy = root / name, target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)


def run_step(command, variant, shims, home):
    """Runs a RUN instruction with shims of programs in front of the PATH."""
    return subprocess.run(["sh", "-c", command], text=True, capture_output=True, check=False,
                          env={"VARIANT": variant, "PATH": f"{shims}:{os.environ['PATH']}", "HOME": str(home)})


def make_shims(directory):
    """pip only prints its arguments; cmake configures, and leaves out --build and --install."""
    directory.mkdir()
    (directory / "python3").write_text("#!/bin/sh\necho \"$@\"\n")
    (directory / "cmake").write_text(f"#!/bin/sh\n[ \"$1\" != -S ] || exec {shutil.which('cmake')} \"$@\"\n")
    for shim in directory.iterdir():
        shim.chmod(0o755)
    return directory


def pinned(root):
    text = (root / "scripts/lib/setup_cuda.sh").read_text()
    return dict(re.findall(r'^  "(\S+) (\S+) [0-9a-f]{64}"$', text, re.M))


def lay_out_libtorch(directory, wheels):
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "oarlock/torch-2.11.0"
    (directory / "nvidia/cu13").mkdir(parents=True)
    (directory / "torch").symlink_to(cache / "torch")
    (directory / "nvidia/cu13/lib").symlink_to(cache / "nvidia/cu13/lib")
    for wheel, header in HEADERS.items():
        if wheel in wheels:
            (directory / header).parent.mkdir(parents=True, exist_ok=True)
            (directory / header).touch()


def configure(root, dockerfile, variant):
    """None, or why the configure step fails."""
    runs = [rest for key, rest in instructions(dockerfile.read_text()) if key == "RUN"]
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        shims = make_shims(work / "shims")
        (work / "home").mkdir()
        copy_context(root, dockerfile.with_name(dockerfile.name + ".dockerignore"), work / "source")
        for pip in (run for run in runs if "pip install" in run):
            words = run_step(pip, variant, shims, work / "home").stdout.split()
            wheels = dict(word.split("==") for word in words if "==" in word)
            for wheel, version in pinned(root).items():
                if variant == "cuda" and wheels.get(wheel) != version:
                    return f"installs {wheel} {wheels.get(wheel)}, but scripts/lib/setup_cuda.sh has {version}: use that"
            lay_out_libtorch(work / "libtorch", wheels)
        command = next(run for run in runs if "cmake -S" in run)
        for directory in ("/source", "/build", "/libtorch"):
            command = re.sub(rf"(?<![\w/]){directory}(?!\w)", str(work) + directory, command)
        result = run_step(command, variant, shims, work / "home")
        return None if result.returncode == 0 else result.stdout[-2000:] + result.stderr[-4000:]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    bad = 0
    for name, variants in (("operator", [""]), ("launcher", [""]), ("trainer", ["cpu", "cuda"]), ("development", ["cpu", "cuda"])):
        for variant in variants:
            problem = configure(root, root / f"docker/{name}.Dockerfile", variant)
            print(f"{name} {variant}: {'configured' if problem is None else problem}")
            bad += problem is not None
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
