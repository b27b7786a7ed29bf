"""A Conan 2 recipe of oarlock::ddp. It builds the checkout that contains it."""
import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.gnu import PkgConfigDeps

# What the build of the library alone reads.
SOURCES = ("CMakeLists.txt", "LICENSE", "VERSION", "cmake/*", "common/*", "recovery/*", "ddp/*")


class OarlockDdp(ConanFile):
    name = "oarlock-ddp"
    description = "DistributedDataParallel for C++ programs with LibTorch"
    homepage = "https://github.com/oarlock/oarlock"
    license = "Apache-2.0"
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"torch_dir": ["ANY"]}  # the directory torch of LibTorch, which is not a package
    default_options = {"torch_dir": ""}

    @property
    def _checkout(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        self.version = self.version or load(self, os.path.join(self._checkout, "VERSION")).strip()

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, src=self._checkout, dst=self.export_sources_folder)

    def requirements(self):
        self.requires("tl-expected/[>=1.1 <2]", transitive_headers=True)
        for header_only in ("fmt/[>=9.1 <12]", "nlohmann_json/[>=3.11 <4]", "xxhash/[>=0.8 <1]"):
            self.requires(header_only, visible=False)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("oarlock-ddp supports Linux only")
        if not self.options.torch_dir:
            raise ConanInvalidConfiguration("set the option torch_dir to the directory torch of LibTorch")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["OARLOCK_ONLY_DDP"] = True
        toolchain.cache_variables["OARLOCK_TORCH_DIR"] = str(self.options.torch_dir)
        toolchain.generate()
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # The package has its own oarlockConfig.cmake and oarlock-ddp.pc.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/oarlock"]
        self.cpp_info.libs = ["oarlock_ddp", "oarlock_ddp_settings", "oarlock_base"]
