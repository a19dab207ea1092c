"""The SGLang plugin: entry point ``sglang.srt.plugins``, or ``inflightd_hook_start`` where an
engine has no plugins or a launcher does not load them.

Observation only. ``INFLIGHTD_HOOK=off`` turns it off.
"""

import os

__all__ = ["is_off", "register"]


def is_off():
    """Whether the environment turns the hook off."""
    return os.environ.get("INFLIGHTD_HOOK", "").strip().lower() in ("off", "0", "false", "no")


def register():
    """Hooks SGLang's scheduler, in a process that has loaded it. Never raises."""
    if is_off():
        return
    from inflightd_hook.sglang import attach

    attach.faults.contain("the plugin", attach.patch_classes)()
