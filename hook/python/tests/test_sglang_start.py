"""The import hook, in processes of their own with a small SGLang."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import inflightd_hook_start

SITE = Path(inflightd_hook_start.__file__).parent
FILES = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/managers/__init__.py": "",
    "sglang/srt/disaggregation/__init__.py": "",
    "sglang/srt/disaggregation/common/__init__.py": "",
    # As `disaggregation/common/utils.py` of 0.5.23 for what counts here.
    "sglang/srt/disaggregation/common/utils.py": "class FastQueue:\n    def get(self): pass\n",
    "sglang/srt/managers/scheduler.py": (
        # Its backends, which have the queue, it imports when it is built.
        "class Scheduler:\n    def __init__(self): self.built = True\n"
    ),
}
START = f"import sys; sys.path.insert(0, {str(SITE)!r}); import inflightd_hook_start\n"
HOOKED = "from sglang.srt.managers.scheduler import Scheduler\n" \
    "from sglang.srt.disaggregation.common.utils import FastQueue\n" \
    "print(hasattr(Scheduler, '_inflightd'), hasattr(FastQueue.get, '__wrapped__'))\n" \
    "print(Scheduler().built)\n"


class Start(unittest.TestCase):
    def run_python(self, code, broken=False, **env):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in FILES.items():
                file = Path(folder) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            if broken:
                package = Path(folder) / "inflightd_hook"
                package.mkdir()
                (package / "__init__.py").write_text("raise RuntimeError('broken')")
            first = f"import sys; sys.path.insert(0, {folder!r})\n"
            # The folder comes before the package, so that it can hide it.
            command = [sys.executable, "-S", "-c", START + first + code]
            environment = {**os.environ, **env}
            ran = subprocess.run(command, capture_output=True, text=True, env=environment)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""), ran.stderr)
            return ran.stdout.split()

    def test_the_scheduler_is_hooked_as_it_is_imported(self):
        self.assertEqual(self.run_python(HOOKED), ["True", "True", "True"])

    def test_hooked_twice_is_hooked_once(self):
        code = HOOKED + "from inflightd_hook.sglang import register\n" \
            "once = Scheduler.__init__\nregister()\nprint(Scheduler.__init__ is once)\n"
        self.assertEqual(self.run_python(code)[-1], "True")

    def test_a_process_without_sglang_pays_for_no_import(self):
        code = "import json\nprint(*[n for n in sys.modules if 'inflightd_hook' in n])\n"
        self.assertEqual(self.run_python(code), ["inflightd_hook_start"])

    def test_the_environment_turns_it_off(self):
        for value in ("off", "OFF", "0"):
            out = self.run_python(HOOKED, INFLIGHTD_HOOK=value)
            self.assertEqual(out, ["False", "False", "True"])

    def test_the_plugin_route_is_turned_off_too(self):
        code = HOOKED + "from inflightd_hook.sglang import register\nregister()\n" \
            "print(hasattr(Scheduler, '_inflightd'))\n"
        self.assertEqual(self.run_python(code, INFLIGHTD_HOOK="off")[-1], "False")

    def test_the_line_that_every_process_runs_never_fails(self):
        line = (Path(__file__).parents[1] / "src" / "inflightd_hook.pth").read_text()
        self.assertTrue(line.startswith("import ") and line.count("\n") == 1)
        for body in ("raise RuntimeError", "raise ImportError", "import inflightd_of_no_name"):
            with tempfile.TemporaryDirectory() as site:
                (Path(site) / "inflightd_hook_start.py").write_text(body)
                (Path(site) / "hook.pth").write_text(line)
                code = f"import site; site.addsitedir({site!r}); print('up')"
                command = [sys.executable, "-S", "-c", code]
                ran = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual((ran.stdout, ran.stderr), ("up\n", ""))

    def test_a_broken_package_breaks_nothing(self):
        self.assertEqual(self.run_python(HOOKED, broken=True), ["False", "False", "True"])


if __name__ == "__main__":
    unittest.main()
