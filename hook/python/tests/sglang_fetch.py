"""Unpacks the sources of SGLang's wheels that the tests read: a step of ``cargo xtask setup``.

Looks first: what is there is not fetched again.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from sglang_wheel import NAMED, WHEELS

KEPT = ("disaggregation", "managers", "mem_cache", "plugins")
"""Folders of ``sglang/srt`` that are kept; the whole wheel is ten times as large."""


def fetch(version):
    """Fetches one wheel and keeps its sources under ``WHEELS``."""
    with tempfile.TemporaryDirectory(dir=WHEELS) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        # The wheels of later versions are for one Python only; their sources are read, not run.
        chosen = ["--python-version", "3.11", "--only-binary=:all:"]
        subprocess.run([*pip, *chosen, f"sglang=={version}"], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        fresh = Path(folder) / "fresh"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(fresh, [name for name in archive.namelist() if is_kept(name)])
        shutil.move(fresh, WHEELS / version)


def is_kept(name):
    parts = name.split("/")
    return name.endswith(".py") and parts[:2] == ["sglang", "srt"] and parts[2] in KEPT


def main():
    WHEELS.mkdir(parents=True, exist_ok=True)
    for version in NAMED:
        if not (WHEELS / version).exists():
            fetch(version)


if __name__ == "__main__":
    main()
