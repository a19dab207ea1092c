"""What the agent asks: rooms that are held, and rooms that are to be failed on all their ranks.

``inflight.h`` says under "Failing a room" what a worker does then, and why it is safe.
"""

import contextlib
import queue
import threading
import time

from inflightd_hook.sglang import engine

UNTOLD_MOST = 256
"""Fails whose far ends are still to be told; a sender that hangs is no reason to keep more."""


class Commands:
    """Carries out on one rank what is asked; all but the telling on the scheduler's thread.

    faults: where what cannot go on is counted, which ends the gate and with it the carrying out.
    """

    def __init__(self, worker, inflight, manager, gate, faults):
        self._worker, self._queue, self._manager = worker, inflight, manager
        self._faults = faults
        self.gate = gate
        self._ask, self._asked = worker.asked, worker.asked()
        self._begun = 0
        self._mail = None
        self.known = {}
        """By sequence: stays of which something is asked."""

    def before(self):
        """Before each poll."""
        if not self.gate.is_stated:
            self._state()
        asked = self._ask()
        if asked != self._asked or self.known or self.gate.waiting:
            self._begun = time.monotonic_ns()
            self._meet(asked)
            # Holds that an ended gate leaves behind still end; nothing more is failed.
            if not self.gate.is_over:
                self._carry_out()

    def _state(self):
        """What a sender can do shows by the first that is not made for a warm-up."""
        stays = () if self.gate.is_over else self._queue.stays()
        if any(engine.can_be_failed(stay.req) for stay in stays):
            self.gate.state()

    def _meet(self, asked):
        stays = self._queue.stays()
        if asked == self._asked:
            # An agent that died as it asked has told nobody; who was held up knows.
            rooms = self.gate.rooms()
            stays = [stay for stay in stays if stay.room in rooms]
        self._asked = asked
        for stay in stays:
            if stay.seq not in self.known and self._worker.command(stay.seq) != "open":
                self.known[stay.seq] = stay

    def _carry_out(self):
        for stay in self.known.values():
            fail = self._worker.carry_out(stay.seq) if self._queue.has(stay) else None
            if fail is not None:
                self._fail(stay, fail)

    def _fail(self, stay, fail):
        """What ``conclude_failure`` does, but for its message: sending may block the scheduler."""
        # First, and by nothing that could go wrong: the other ranks count on it in this poll.
        stay.req.disagg_kv_sender.conclude_state = engine.FAILED
        targets = engine.targets(self._manager, stay.room)
        reason = (
            f"inflightd: KV transfer failed on purpose: {fail.reason}, "
            f"after {fail.dwell_s:.1f} s in the inflight queue"
        )
        with self._manager.failure_lock:
            self._manager.failure_records.setdefault(stay.room, reason)
        self._manager.update_status(stay.room, engine.FAILED)
        if fail.tell_peers and targets:
            self._tell(targets, stay.room, reason)

    def after(self):
        """After each poll that was reduced over all ranks, and what left was told."""
        for seq, stay in list(self.known.items()):
            if self._queue.has(stay):
                self._worker.polled(seq, self._begun)
            if not self._queue.has(stay) or self._worker.command(seq) == "open":
                del self.known[seq]

    def _tell(self, targets, room, reason):
        if self._mail is None:
            self._mail = queue.Queue(UNTOLD_MOST)
            told = self._faults.contain("telling the far ends", self._told)
            threading.Thread(target=told, name="inflightd-tell", daemon=True).start()
        self._mail.put_nowait((targets, room, reason))

    def _told(self):
        """The thread that tells the far ends."""
        while (message := self._mail.get()) is not None:
            targets, room, reason = message
            self._manager.send_kv_status_message(
                targets=targets,
                bootstrap_room=room,
                status=engine.FAILED,
                failure_reason=reason,
            )

    def close(self):
        """The worker ends: what is set aside goes back, what is to be told still is."""
        self.gate.settle()
        if self._mail is not None:
            with contextlib.suppress(queue.Full):
                self._mail.put_nowait(None)
