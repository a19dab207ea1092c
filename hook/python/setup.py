"""Puts libinflight.so into the package, and the platform into the wheel's name."""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution

HERE = Path(__file__).resolve().parent
PACKAGED = HERE / "src" / "inflightd_hook" / "libinflight.so"
START = HERE / "src" / "inflightd_hook.pth"
WORKSPACE = HERE.parent.parent


def library():
    """The library to ship: built from this checkout where it is one, else the packaged file."""
    if not (WORKSPACE / "hook" / "marker" / "Cargo.toml").exists():
        if PACKAGED.exists():
            return PACKAGED
        raise SystemExit(
            "libinflight.so is not here and there are no sources to build it from: "
            "install from a checkout of inflightd, or from a wheel"
        )
    if shutil.which("cargo") is None:
        raise SystemExit("building libinflight.so needs cargo in PATH: run `cargo xtask setup`")
    subprocess.run(
        ["cargo", "build", "--quiet", "--profile", "hook", "--package", "libinflight"],
        cwd=WORKSPACE,
        check=True,
    )
    target = os.environ.get("CARGO_TARGET_DIR", WORKSPACE / "target")
    return WORKSPACE / target / "hook" / "libinflight.so"


class BuildPy(build_py):
    """Ships the library, and the line that every Python process runs at its start."""

    def run(self):
        made = library()
        if made != PACKAGED:
            # Replaced, never overwritten: a running engine may have the old file mapped.
            fresh = PACKAGED.with_suffix(".so.new")
            shutil.copy(made, fresh)
            os.replace(fresh, PACKAGED)
        super().run()
        # Beside the packages, where `site` looks for it.
        self.copy_file(str(START), os.path.join(self.build_lib, START.name))


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        # The library is loaded with ctypes: any Python 3 of this platform will do.
        _python, _abi, platform = super().get_tag()
        return "py3", "none", platform


setup(
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildPy, "bdist_wheel": PlatformWheel},
)
