"""Queue marks for inflightd: what a Python engine calls to say what its inflight queue does.

    from inflightd_hook import open_worker

    w = open_worker("prefill", "my-engine", "1.0", ranks={"tp": (0, 2)},
                    identities=[("nixl_agent", "prefill-0")])
    seq = w.append(room, rid, peers=[("nixl_agent", "decode-0")], expected_bytes=1 << 20)
    if w.serve(seq):
        w.post(seq, 1 << 20)
        ...
        w.done(seq, 1 << 20, True)
        w.serve_end()
    w.remove(seq, "success")
    w.beat()                      # after every poll of the queue

No call releases the GIL, waits, or fails because of the agent. Where the hook cannot be set up it
logs one line and every call does nothing: ``append`` returns 0, ``serve`` returns True.
"""

from inflightd_hook._worker import Worker, open_worker

__all__ = ["Worker", "open_worker"]
