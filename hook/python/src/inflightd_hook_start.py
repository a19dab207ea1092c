"""Hooks SGLang as soon as a process imports its scheduler.

Imported by ``inflightd_hook.pth`` in every Python process, so it does next to nothing: it leaves a
finder that compares one name at each import, and goes away with the first match. For launchers
that do not load plugins (Ray) and SGLang before 0.5.11, which has none.
"""

import os
import sys

SCHEDULER = "sglang.srt.managers.scheduler"


class Finder:
    """Finds nothing itself: whoever finds the scheduler loads it, and then it is hooked."""

    def find_spec(self, name, path=None, target=None):
        if name != SCHEDULER:
            return None
        try:
            sys.meta_path.remove(self)
            return hooked(find(name, path, target))
        except Exception:  # noqa: BLE001 - the import is the engine's, and goes on without us
            return None


def find(name, path, target):
    for finder in sys.meta_path:
        spec = getattr(finder, "find_spec", lambda *_: None)(name, path, target)
        if spec is not None:
            return spec
    return None


def hooked(spec):
    """The same module, whose loader runs the hook once the module has run."""
    original = spec.loader.exec_module

    def exec_module(module):
        original(module)
        try:
            from inflightd_hook.sglang import register

            register()
        except Exception:  # noqa: BLE001 - likewise
            pass

    spec.loader.exec_module = exec_module
    return spec


def start():
    """Leaves the finder, unless the environment turns the hook off."""
    if os.environ.get("INFLIGHTD_HOOK", "").strip().lower() not in ("off", "0", "false", "no"):
        sys.meta_path.insert(0, Finder())


start()
