"""The SGLang plugin: entry point ``sglang.srt.plugins``, or ``inflightd_hook_start`` where an
engine has no plugins or a launcher does not load them.

It observes, and fails rooms that the agent asks it to fail, where the agent is configured to ask.
``INFLIGHTD_HOOK=off`` turns it off, ``INFLIGHTD_HOOK_COMMANDS=off`` all but the observation.
"""

import os

__all__ = ["is_off", "register", "wants_commands"]


def is_off():
    """Whether the environment turns the hook off."""
    return _says_no("INFLIGHTD_HOOK")


def wants_commands():
    """Whether the hook may do what the agent asks."""
    return not _says_no("INFLIGHTD_HOOK_COMMANDS")


def _says_no(name):
    return os.environ.get(name, "").strip().lower() in ("off", "0", "false", "no")


def register():
    """Hooks SGLang's scheduler, in a process that has loaded it. Never raises."""
    if is_off():
        return
    from inflightd_hook.sglang import attach

    attach.faults.contain("the plugin", attach.patch_classes)()
