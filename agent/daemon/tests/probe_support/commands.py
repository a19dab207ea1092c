"""What both ends of the probe tests do: one JSON command a line in, one answer out."""

import json
import os
import signal
import sys


def serve(peer):
    """Say what the peer is, then call what each line asks for, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print(json.dumps(peer.describe()), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(peer, command.pop("do"))(**command)
        print(json.dumps(answer), flush=True)
    # The libraries' destructors wait for peers that may be stopped.
    os._exit(0)
