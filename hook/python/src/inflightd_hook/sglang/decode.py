"""The decode scheduler's queues, told to libinflight: rooms that wait for memory, and rooms that
wait for their bytes.

None of them is judged: they say to the agent what a prefill's room waits for.
"""

from inflightd_hook.sglang import engine

WAITS_FOR_MEMORY, WAITS_FOR_BYTES = "prealloc", "transferring"


class DecodeQueues:
    """Finds what entered, moved on and left by comparing the two lists with the last ones."""

    def __init__(self, scheduler, worker):
        self._scheduler = scheduler
        self._worker = worker
        self._stays = {}
        """By id of a ``DecodeRequest``: it, its sequence and where it is."""
        self._seen = ([], [])

    def compare(self):
        """Tells what has changed since the last call."""
        prealloc = self._scheduler.disagg_decode_prealloc_queue.queue
        transfer = self._scheduler.disagg_decode_transfer_queue.queue
        if prealloc == self._seen[0] and transfer == self._seen[1]:
            return
        self._seen = (list(prealloc), list(transfer))
        for waiting, phase in zip(self._seen, (WAITS_FOR_MEMORY, WAITS_FOR_BYTES)):
            for entry in waiting:
                self._is_in(entry, phase)
        here = {id(entry) for waiting in self._seen for entry in waiting}
        for key in [key for key in self._stays if key not in here]:
            entry, seq, _ = self._stays.pop(key)
            self._worker.remove(seq, engine.received(entry.req))

    def _is_in(self, entry, phase):
        known = self._stays.get(id(entry))
        if known is not None and known[2] == phase:
            return
        req = entry.req
        seq = known[1] if known is not None else self._worker.append(
            getattr(req, "bootstrap_room", None) or 0, req.rid,
            peers=engine.senders(entry),
            traceparent=engine.traceparent(req),
        )
        fake = engine.is_exempt(req, None)
        self._worker.phase(seq, "exempt" if fake else phase)
        self._stays[id(entry)] = (entry, seq, phase)
