"""A worker with the real hook that loads NIXL when it is told to, and sends rooms to itself.

Says `@ready`, then reads lines. `load` makes a NIXL agent and answers `@loaded`. `send N` lets N
rooms come and go, one transfer each, of which the hook is not told: `@sent N`.
"""

import pathlib
import sys

from inflightd_hook import open_worker

NAME = "test-nixl"
SIZE = 65536


def load():
    """NIXL, numpy and everything below them, as an engine that imports its transport late."""
    sys.path.append(str(pathlib.Path(__file__).parent.parent / "probe_support"))
    from nixl_peer import Peer

    peer = Peer(NAME, 16 << 20)
    peer.itself()
    return peer


def send(worker, peer, room):
    seq = worker.append(room, f"rid-{room}", peers=[("nixl_agent", NAME)], expected_bytes=SIZE)
    worker.serve(seq)
    peer.post(1, SIZE)
    state = peer.wait()["state"]
    peer.release()
    worker.serve_end()
    worker.remove(seq, "success" if state == "DONE" else "failed")


def main():
    worker = open_worker("prefill", "test", "1", identities=[("nixl_agent", NAME)])
    print("@ready", flush=True)
    peer, rooms = None, 0
    for line in sys.stdin:
        what, *count = line.split()
        if what == "load":
            peer = load()
            print("@loaded", flush=True)
        else:
            for _ in range(int(count[0])):
                rooms += 1
                send(worker, peer, rooms)
            print("@sent", *count, flush=True)


main()
