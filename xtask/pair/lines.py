"""JSON lines: commands come in on stdin, events go out on stdout.

Every event carries `at`, CLOCK_MONOTONIC in nanoseconds: the clock that the case
runner reads too, so an injection made here and a verdict seen there compare.
"""

import ctypes
import json
import signal
import sys
import threading
import time

_lock = threading.Lock()


def say(event, **fields):
    """Write one event; safe from any thread, flushed before it returns."""
    line = json.dumps({"event": event, "at": time.monotonic_ns(), **fields})
    with _lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def die_with_runner():
    """End with the runner that started this process, however it ends: a stopped process
    would otherwise stay for ever."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def commands():
    """Yield one dict per stdin line until EOF; a bad line becomes a `refused` event."""
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            say("refused", why=f"not a JSON line: {error}")


def serve(handlers, command):
    """Run the handler that `command["do"]` names; what it raises becomes a `refused` event."""
    name = command.pop("do", None)
    handler = handlers.get(name)
    if handler is None:
        say("refused", why=f"unknown command {name!r}; known: {sorted(handlers)}")
        return
    try:
        handler(**command)
    except Exception as error:  # noqa: BLE001 - the runner must see any failure as an event
        say("refused", why=f"{name}: {type(error).__name__}: {error}")
