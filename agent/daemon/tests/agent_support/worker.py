"""A worker with the real hook that appends and removes rooms until it is told to stop.

Says `@ready`, then reads lines: `stop` ends every room and answers `@seqs` with the sequences of
all rooms there were.
"""

import sys
import threading
import time

from inflightd_hook import open_worker

HELD = 0.3
"""Seconds that each tenth room stays in the queue; the others stay for a moment."""


def main():
    worker = open_worker("prefill", "test", "1", ranks={"tp": (0, 1)}, identities=[("nixl_agent", "test-prefill")])
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    print("@ready", flush=True)
    seqs, held = [], []
    while not stop.is_set():
        room = len(seqs)
        seq = worker.append(room, f"rid-{room}", peers=[("nixl_agent", "nobody")], expected_bytes=100)
        seqs.append(seq)
        worker.serve(seq)
        worker.post(seq, 100)
        worker.done(seq, 100, True)
        worker.serve_end()
        worker.beat()
        if room % 10 == 0:
            held.append((time.monotonic() + HELD, seq))
        else:
            worker.remove(seq, "success")
        while held and held[0][0] < time.monotonic():
            worker.remove(held.pop(0)[1], "success")
        time.sleep(0.005)
    for _, seq in held:
        worker.remove(seq, "aborted")
    print("@seqs", *seqs, flush=True)
    while sys.stdin.readline():
        worker.beat()
    # Until its last end has been read the table must be there.
    time.sleep(60)


main()
