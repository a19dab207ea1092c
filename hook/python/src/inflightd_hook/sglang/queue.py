"""The prefill scheduler's inflight queue, told to libinflight."""

from inflightd_hook.sglang import engine

BEAT_S = 0.005
"""Least seconds from one beat to the next: an idle engine polls some thousand times a second, and
nobody asks more closely when it last did."""
EARLY_MOST = 4096
"""Rooms with chunks sent before they entered the queue; the victim is the oldest."""


def say(worker, seq, marks):
    """Makes marks that were kept until the room had a sequence."""
    for mark, *arguments in taken(marks):
        getattr(worker, mark)(seq, *arguments)


def taken(marks):
    """Takes each mark out of its list, once whichever thread does."""
    while marks:
        try:
            yield marks.pop(0)
        except IndexError:  # another thread was faster
            return


class Beat:
    """Says that a scheduler polls its queue, as often as anybody asks."""

    def __init__(self, worker):
        self._beat, self._due = worker.beat, 0.0

    def tell(self, now):
        """Polled. now: ``time.monotonic``."""
        if now >= self._due:
            self._due = now + BEAT_S
            self._beat()


class Stay:
    """One request's stay in the queue."""

    __slots__ = ("req", "room", "seq", "parked", "exempt", "told")

    def __init__(self, req, room, seq, parked, exempt):
        self.req, self.room, self.seq = req, room, seq
        self.parked, self.exempt = parked, exempt
        self.told = None
        """How this rank's own part ended, once that was told."""


class InflightQueue:
    """What is in the queue, and the marks for what enters and leaves.

    Entries and removals are found by comparing the list with the last one, which costs next to
    nothing while it is the same. Called on the scheduler's thread only; ``seqs`` and what follows
    it are read by the threads that transfer.
    """

    def __init__(self, scheduler, worker):
        self._scheduler = scheduler
        self._worker = worker
        self._stays = {}
        self._seen = []
        self._beat = Beat(worker)
        self.seqs = {}
        """Sequence by room of what is in the queue."""
        self.last = 0
        """Sequence of what entered last."""
        self.early = {}
        """By room: marks of chunks that were sent before the room entered."""
        self.working = {}
        """By thread: the chunk that it is working on."""
        self.entering = None
        """The room that is just being appended: it may be in the table and not in ``seqs`` yet."""
        self.gate = None
        """Where chunks are set aside, if they are."""

    def sending(self, req, last_chunk):
        """Before a chunk is handed on. With the last one the request has just entered."""
        stay = self._stays.get(id(req))
        if stay is None:
            if last_chunk:
                self._enter(req, parked=False)
        elif stay.parked:
            stay.parked = False
            if not stay.exempt:
                self._worker.phase(stay.seq, "peers_ready")

    def poll(self, over=None):
        """Before a poll: tells what has entered. After it: what has left, and that it was polled.

        over: when the poll was over, by ``time.monotonic``; None before it.
        """
        if over is None:
            # Only a poll takes out, so that lengths tell.
            if len(self._scheduler.disagg_prefill_inflight_queue or ()) != len(self._seen):
                self.compare()
            return
        self.compare()
        self._beat.tell(over)

    def compare(self):
        """Tells what has entered and left since the last call."""
        queue = self._scheduler.disagg_prefill_inflight_queue
        if queue == self._seen:
            return
        queue = list(queue or ())
        here = {id(req) for req in queue}
        for req in queue:
            if id(req) not in self._stays:
                self._enter(req, engine.is_parked(req))
        for key in [key for key in self._stays if key not in here]:
            self._leave(self._stays.pop(key))
        self._seen = queue

    def compare_ranks(self):
        """Tells of each request whose own part has ended that the other ranks' has not: it would
        have left."""
        for stay in self._stays.values():
            state = engine.own_state(stay.req)
            if state != stay.told and state is not None and not stay.exempt:
                stay.told = state
                self._worker.phase(stay.seq, state)

    def stays(self):
        """What is in the queue."""
        return list(self._stays.values())

    def has(self, stay):
        """Whether a stay lasts."""
        return self._stays.get(id(stay.req)) is stay

    def _enter(self, req, parked):
        room = getattr(req, "bootstrap_room", None) or 0
        self.entering = room
        try:
            self._append(req, room, parked)
        finally:
            self.entering = None
        self.replay(room, self.seqs[room])
        if self.gate is not None and self.gate.waiting:
            # For what a thread has set aside because the room was just entering.
            self.gate.wake()

    def _append(self, req, room, parked):
        manager = engine.manager(self._scheduler)
        seq = self._worker.append(
            room,
            req.rid,
            peers=engine.peers(manager, room),
            expected_bytes=engine.expected_bytes(req, manager),
            traceparent=engine.traceparent(req),
        )
        exempt = engine.is_exempt(req, manager)
        self._stays[id(req)] = Stay(req, room, seq, parked, exempt)
        if exempt:
            self._worker.phase(seq, "exempt")
        elif parked:
            self._worker.phase(seq, "parked")
        self.seqs[room] = self.last = seq

    def replay(self, room, seq):
        """Marks what was sent for the room before it entered, and what is being sent."""
        say(self._worker, seq, self.early.pop(room, []))
        for chunk in list(self.working.values()):
            if chunk.room == room and chunk.seq is None:
                # Its thread may stand still in a call, and say nothing for long.
                say(self._worker, seq, chunk.marks)

    def keep_early(self, room, marks):
        """Keeps marks for a room that is not in the queue yet."""
        while len(self.early) >= EARLY_MOST and room not in self.early:
            self.early.pop(next(iter(self.early)), None)
        kept = self.early.setdefault(room, [])
        kept.extend(taken(marks))
        seq = self.seqs.get(room)
        if seq is not None:
            # It has entered meanwhile, and the list may be out already; each mark is said once,
            # whoever takes it out.
            self.early.pop(room, None)
            say(self._worker, seq, kept)

    def _leave(self, stay):
        if self.seqs.get(stay.room) == stay.seq:
            del self.seqs[stay.room]
        self._worker.remove(stay.seq, engine.outcome(stay.req))
