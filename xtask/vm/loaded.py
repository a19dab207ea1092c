"""Prints every file that an end of the pair has loaded, one a line: what a virtual machine needs of Python,
numpy, NIXL and UCX to run it.

Asked of a running one, for what UCX and NIXL load they look for themselves. Run beside the pair's scripts.
"""

import os
import sys
import sysconfig
import traceback  # noqa: F401 - what goes wrong in the machine shall be said there

import decode  # noqa: F401
import prefill
from handshake import Door, ask
from node import Node, open_hook

node = Node("loaded", 1 << 16, filled=True)
hook = open_hook("prefill", "loaded", bare=False)
# What Python loads when it is asked for the first time: a parser's words, a connection's names.
sys.argv = ["loaded", "loaded"]
prefill.arguments()
ask(Door().port, 1, lambda: None)

files = {os.path.realpath(sys.executable)}
for module in list(sys.modules.values()):
    source = getattr(module, "__file__", None)
    if source is not None:
        files.add(source)
with open("/proc/self/maps") as maps:
    mapped = [line.split(maxsplit=5)[5].strip() for line in maps if "r-xp" in line and ".so" in line]
files.update(mapped)
# By which Python knows where its own modules lie.
files.add(os.path.join(sysconfig.get_path("stdlib"), "os.py"))
print("\n".join(sorted(file for file in files if os.path.exists(file))))
sys.stdout.flush()
# NIXL's destructors have nothing to add.
os._exit(0)
