#!/usr/bin/env python3
"""OARLOCK_ONLY_DDP configures without the dependencies of the programs, and builds and installs nothing but the library. The port
for vcpkg and the recipe for Conan have the version of the checkout, and name what it contains.
"""
import ast
import json
import os
import pathlib
import subprocess
import tempfile

SOURCE = pathlib.Path(os.environ["OARLOCK_SOURCE"])
TORCH = os.environ["OARLOCK_TORCH_DIR"]
NOT_NEEDED = ("OpenSSL", "ZLIB", "spdlog", "CLI11", "prometheus-cpp", "Boost", "simdjson", "cpprestsdk", "GTest")
LIBRARIES = {"liboarlock_base.a", "liboarlock_ddp_settings.a", "liboarlock_regroup.a", "liboarlock_ddp.a"}


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def check_build(build):
    run("cmake", "-S", SOURCE, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DOARLOCK_ONLY_DDP=ON",
        f"-DOARLOCK_TORCH_DIR={TORCH}", *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in NOT_NEEDED))
    targets = [line.split(":")[0] for line in run("ninja", "-C", build, "-t", "targets", "all").splitlines()]
    libraries = {pathlib.PurePath(target).name for target in targets if target.endswith(".a")}
    assert LIBRARIES <= libraries and all("pch" in name for name in libraries - LIBRARIES), libraries
    rooms = {target.split("/")[0] for target in targets if target.endswith(".o")}
    assert rooms == {"common", "ddp", "recovery"}, rooms
    flags = (build / "oarlock-ddp.pc").read_text()
    assert f"torch_dir={TORCH}" in flags and "-loarlock_ddp " in flags, flags


def check_packaging():
    version = (SOURCE / "VERSION").read_text().strip()
    port = json.loads((SOURCE / "packaging/vcpkg/oarlock-ddp/vcpkg.json").read_text())
    assert port["version-semver"] == version, port
    recipe = ast.parse((SOURCE / "packaging/conan/conanfile.py").read_text())
    [sources] = [ast.literal_eval(node.value) for node in recipe.body if isinstance(node, ast.Assign) and node.targets[0].id == "SOURCES"]
    for pattern in sources:
        assert list(SOURCE.glob(pattern)), f"the recipe for Conan names {pattern}"


check_packaging()
with tempfile.TemporaryDirectory() as name:
    check_build(pathlib.Path(name) / "build")
