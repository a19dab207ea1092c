"""An engine of several ranks, all in one process, that does what the agent asks of a room.

`ranks.py SIZE [deaf]`: says `@ready`, then reads lines and answers each with `@WORD REST`. Its ranks poll
together every 10 ms, and a room that one of them fails leaves the queues of all. With `deaf` it does
not say that it carries out what is asked.
"""

import pathlib
import sys
import threading
import time

from inflightd_hook import open_worker

NAME = "test-nixl"
SIZE = 65536


class Engine:
    """Ranks, their rooms and the thread that polls."""

    def __init__(self, size, deaf):
        ranks = [{"tp": (index, size)} for index in range(size)]
        self.ranks = [open_worker("prefill", "test", "1", ranks=rank) for rank in ranks]
        for rank in self.ranks:
            if not deaf:
                rank.gauge("commands", 1)
        self.rooms = {}
        """Sequences by room, one a rank that has it."""
        self.failed = {}
        self.polls, self.turn = False, threading.Lock()
        self.peer = None
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            time.sleep(0.01)
            with self.turn:
                if self.polls:
                    self.poll()

    def poll(self):
        begun = time.monotonic_ns()
        failed = {}
        for index, rank in enumerate(self.ranks):
            for room, seqs in self.rooms.items():
                if index in seqs and rank.command(seqs[index]) != "open":
                    fail = rank.carry_out(seqs[index])
                    if fail is not None:
                        failed[room] = f"{fail.reason} after {fail.dwell_s > 0} {fail.tell_peers}"
        for index, rank in enumerate(self.ranks):
            for room, seqs in self.rooms.items():
                if index in seqs and room in failed:
                    rank.remove(seqs[index], "failed")
                elif index in seqs and rank.command(seqs[index]) != "open":
                    rank.polled(seqs[index], begun)
            rank.beat()
        for room, reason in failed.items():
            self.failed[room] = reason
            del self.rooms[room]

    def enter(self, room, *ranks):
        """The room enters the queue of each rank, or of those that are named."""
        ranks = [int(rank) for rank in ranks] or range(len(self.ranks))
        append = lambda rank: self.ranks[rank].append(int(room), "rid", peers=[("nixl_agent", NAME)])  # noqa: E731
        self.rooms[int(room)] = {rank: append(rank) for rank in ranks}

    def poll_on(self, on):
        self.polls = on == "on"

    def load(self):
        """NIXL, that the library's posts can be seen."""
        sys.path.append(str(pathlib.Path(__file__).parent.parent / "probe_support"))
        from nixl_peer import Peer

        self.peer = Peer(NAME, 16 << 20)
        self.peer.itself()

    def send(self, room, rank):
        """One transfer of the room, which arrives."""
        worker, seq = self.ranks[int(rank)], self.rooms[int(room)][int(rank)]
        go = worker.serve(seq)
        if go:
            worker.post(seq, SIZE)
            self.peer.post(1, SIZE)
            worker.done(seq, SIZE, self.peer.wait()["state"] == "DONE")
            self.peer.release()
            worker.serve_end()
        return "sent" if go else "held"

    def send_unmarked(self, room, rank):
        """Transfers of which the engine marks one."""
        worker, seq = self.ranks[int(rank)], self.rooms[int(room)][int(rank)]
        worker.serve(seq)
        worker.post(seq, SIZE)
        for _ in range(2):
            self.peer.post(1, SIZE)
            self.peer.wait()
        worker.done(seq, SIZE, True)
        self.peer.release()
        worker.serve_end()

    def post(self, room, rank):
        """A transfer call that does not come back, as far as the engine says."""
        self.ranks[int(rank)].post(self.rooms[int(room)][int(rank)], SIZE)

    def serve(self, room, rank):
        return "go" if self.ranks[int(rank)].serve(self.rooms[int(room)][int(rank)]) else "held"

    def serve_end(self, rank):
        self.ranks[int(rank)].serve_end()

    def serve_early(self, rank):
        self.ranks[int(rank)].serve_early(0)

    def done_here(self, room, rank):
        self.ranks[int(rank)].phase(self.rooms[int(room)][int(rank)], "done_here")

    def command(self, room, rank):
        seq = self.rooms.get(int(room), {}).get(int(rank))
        return "left" if seq is None else self.ranks[int(rank)].command(seq)

    def reason(self, room):
        return self.failed.get(int(room), "none")


def main():
    engine = Engine(int(sys.argv[1]), "deaf" in sys.argv)
    print("@ready", flush=True)
    for line in sys.stdin:
        word, *arguments = line.split()
        if word in ("load", "send", "send_unmarked"):
            answer = getattr(engine, word)(*arguments)
        else:
            with engine.turn:
                answer = getattr(engine, word)(*arguments)
        print(f"@{word}", "" if answer is None else answer, flush=True)


main()
