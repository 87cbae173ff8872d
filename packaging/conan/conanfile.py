"""A recipe for Conan 2, used from this tree:

    conan create packaging/conan --build=missing -o "gannet/*:shared=True" -o "gannet/*:tools=True"

test_package builds and runs tests/install/consumer.c against what comes out.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rmdir

required_conan_version = ">=2.0"


class Gannet(ConanFile):
    name = "gannet"
    description = "Approximate nearest-neighbour search on graphs"
    license = "Apache-2.0"
    topics = ("nearest-neighbour", "vector-search", "ann", "cuda")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "cuda": [True, False], "tools": [True, False]}
    default_options = {"shared": False, "cuda": False, "tools": False}

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        with open(os.path.join(self._root, "capi", "include", "ann.h")) as header:
            self.version = ".".join(re.findall(r"^#define ANN_VERSION_\w+ (\d+)$", header.read(), re.M))

    def export_sources(self):
        copy(self, "CMakeLists.txt", self._root, self.export_sources_folder)
        copy(self, "LICENSE", self._root, self.export_sources_folder)
        copy(self, "CHANGELOG.md", self._root, self.export_sources_folder)
        for folder in ("capi", "core", "examples", "packaging", os.path.join("tests", "bench")):
            copy(self, "*", os.path.join(self._root, folder),
                 os.path.join(self.export_sources_folder, folder), excludes=("*/target/*", "*.csv"))

    def layout(self):
        cmake_layout(self)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("gannet runs on Linux")

    def requirements(self):
        # A header that is compiled in: who uses the package does not see it.
        self.requires("xxhash/[>=0.8 <0.9]", visible=False)
        if self.options.tools:
            self.requires("cli11/[>=2.3 <3]", visible=False)
            self.requires("nlohmann_json/[>=3.11 <4]", visible=False)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["GANNET_CUDA"] = "on" if self.options.cuda else "off"
        toolchain.cache_variables["GANNET_TOOL"] = "on" if self.options.tools else "off"
        toolchain.cache_variables["GANNET_STATIC"] = False
        toolchain.cache_variables["GANNET_XXHASH_INCLUDE"] = \
            self.dependencies["xxhash"].cpp_info.includedirs[0]
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        for folder in ("cmake", "pkgconfig"):  # Conan writes its own
            rmdir(self, os.path.join(self.package_folder, "lib", folder))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "gannet")
        self.cpp_info.set_property("cmake_target_name", "gannet::gannet")
        self.cpp_info.set_property("pkg_config_name", "gannet")
        self.cpp_info.libs = ["gannet"]
        if not self.options.shared:
            self.cpp_info.system_libs = ["stdc++", "m", "pthread", "dl"]
            if self.options.cuda:
                self.cpp_info.system_libs = ["cudart_static", "rt"] + self.cpp_info.system_libs
