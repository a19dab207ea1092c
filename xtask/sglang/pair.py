"""A real SGLang prefill and its decodes on a CPU, told what to do in JSON lines.

Started by `cargo xtask e2e sglang`; one command a line on stdin, one event a line on stdout.
A zygote imports SGLang once and forks the servers; this process has the threads.

usage: pair.py MODEL
"""

import json
import os
import pathlib
import queue
import signal
import socket
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "pair"))

import client  # noqa: E402
import zmq  # noqa: E402
from lines import commands, die_with_runner, say, serve  # noqa: E402
from server import Server  # noqa: E402

READY = 180.0
"""Longest start of a server in seconds, on a machine that is busy otherwise."""


class Pair:
    """The servers and the commands of the runner."""

    def __init__(self, model, zygote):
        self.model = model
        self.zygote = zygote
        self.servers = {}
        self.hears = {}
        """Where each hears from its peers, as ZeroMQ writes it."""
        self.triggers = []
        self.told = threading.Lock()

    def start(
        self,
        server,
        role,
        log,
        idle,
        flags=(),
        env=None,
        backend="nixl",
        host=None,
        space=None,
        spoil=None,
    ):
        """Fork a server; `ready` follows once it answers. One of that name must have ended: it
        takes the ports of its predecessor, as a restarted pod behind a fixed address does."""
        new = in_thread(lambda: Server(server, role, host or "127.0.0.1", space))
        old = self.servers.get(server)
        if old is not None:
            new.port, new.bootstrap = old.port, old.bootstrap
        self.servers[server] = new
        prefill = self.servers["prefill"]
        told = new.flags(self.model, backend, prefill.bootstrap, list(flags))
        order = {
            "server": server,
            "log": log,
            "idle": idle,
            "env": {"SGLANG_HOST_IP": new.host, **(env or {})},
            "space": space,
            "spoil": spoil,
            "flags": told,
        }
        self.zygote.send(json.dumps(order).encode())

    def request(self, room, to, prompt, new=8, seed=None, sides=("prefill", "decode")):
        """A client's request, to both servers or to one of them."""
        prefill = self.servers["prefill"]
        where = (prefill.host, prefill.bootstrap)
        message = client.body(where, room, prompt, new, room if seed is None else seed)
        targets = {"prefill": prefill, "decode": self.servers[to]}
        for side in sides:
            in_background(client.request, targets[side], side, room, message)

    def abort(self, room, server):
        """The client gives up on one side."""
        self.ask(server, "POST", "/abort_request", {"rid": f"room-{room}"})

    def _call(self, server, method, path, body):
        status, answer = client.call(self.servers[server], method, path, body, patience=30.0)
        say("called", server=server, path=path, status=status, why=client.reason(answer))

    def ask(self, server, method, path, body=None):
        """Any other HTTP call to a server; `called` follows."""
        in_background(self._call, server, method, path, body)

    def probe(self, server, path, every, times):
        """So many GET requests, as a load balancer makes them; one that fails is `refused`."""
        in_background(self._probe, self.servers[server], path, every, times)

    def _probe(self, server, path, every, times):
        for _ in range(times):
            status, answer = client.call(server, "GET", path, patience=30.0)
            if self.servers.get(server.name) is not server:
                return
            if status != 200:
                say("refused", why=f"{path} of {server.name}: {status} {client.reason(answer)}")
            time.sleep(every)

    def signal(self, server, name, whole=False, rank=0):
        """Signal a server's scheduler of that rank, or all of it."""
        self.servers[server].signal(getattr(signal, name), whole, rank)
        say("signalled", server=server, name=name)

    def when(self, room, state, server, name, whole=False, rank=0):
        """Do that the moment the prefill's room comes to be in that state at that rank."""
        with self.told:
            self.triggers.append((room, state, rank, server, name, whole))
        say("waiting", room=room)

    def foreign(self, server):
        """A message that is none of SGLang's comes to where a server hears from its peers."""
        with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
            stranger.connect(self.hears[server])
            stranger.send_multipart([b"GET / HTTP/1.1"])
        say("sent", server=server)

    def kill(self, server):
        """End a server; `ended` follows."""
        self.servers[server].kill()

    def end(self):
        """End all servers and forget them: what starts next is a new pair."""
        end = time.monotonic() + 15
        while open_servers := [one for one in self.servers.values() if one.status is None]:
            if time.monotonic() > end:
                raise TimeoutError(f"{[one.name for one in open_servers]} have not ended")
            for server in open_servers:
                server.kill()  # Again, for one that was just being forked.
            time.sleep(0.05)
        self.servers = {}
        self.triggers = []
        say("all_ended")

    def seen(self, event):
        """Hand on what a watch has seen, and hit where that was waited for."""
        kind = event.pop("event")
        if kind == "engine":
            self.servers[event["server"]].schedulers[event["rank"]] = event["pid"]
            self.hears[event["server"]] = event["hears"]
        say(kind, **event)
        if event.get("server") != "prefill" or "state" not in event:
            return
        key = (event["room"], event["state"], event["rank"])
        with self.told:
            due = [trigger for trigger in self.triggers if trigger[:3] == key]
            self.triggers = [trigger for trigger in self.triggers if trigger[:3] != key]
        for room, _, rank, server, name, whole in due:
            self.servers[server].signal(getattr(signal, name), whole, rank)
            say("hit", room=room, server=server, name=name)

    def forked(self, message):
        """What the zygote tells."""
        if message["event"] == "forked":
            server = self.servers[message["server"]]
            server.pid = message["pid"]
            in_background(self.await_ready, server)
        elif message["event"] == "ended":
            for server in self.servers.values():
                if server.pid == message["pid"]:
                    server.status = message["status"]
                    say("ended", server=server.name, pid=server.pid, status=server.status)
        else:
            say(message["event"], took_s=message.get("took_s"))

    def await_ready(self, server):
        """Ask a server until it answers, then say so."""
        begun = time.monotonic()
        while server.status is None and time.monotonic() < begun + READY:
            status, _ = client.call(server, "GET", "/v1/models", patience=2.0)
            ranks = [pid for _, pid in sorted(server.schedulers.items())]
            if status == 200 and ranks:
                took = round(time.monotonic() - begun, 2)
                facts = {"server": server.name, "ranks": ranks, "port": server.port}
                say("ready", took_s=took, processes=server.processes(), **facts)
                return
            time.sleep(0.1)
        if server.status is None:
            say("refused", why=f"{server.name} does not answer after {READY:.0f} s")


def in_background(function, *args):
    threading.Thread(target=function, args=args, daemon=True).start()


def in_thread(function):
    """The result of a call in a thread of its own: one that may enter a namespace for good."""
    results = queue.SimpleQueue()
    in_background(lambda: results.put(function()))
    return results.get(timeout=10)


def listen_to_watches(pair, events):
    for line in os.fdopen(events, "rb"):
        pair.seen(json.loads(line))


def listen_to_zygote(pair, channel):
    while message := channel.recv(1 << 16):
        pair.forked(json.loads(message))
    say("refused", why="the zygote has ended")


def fork_zygote(events):
    """The zygote's process; the socket to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        theirs.close()
        return ours
    ours.close()
    die_with_runner()
    os.dup2(2, 1)  # stdout is for the controller's events only.
    import zygote

    try:
        zygote.run(theirs, events)
    finally:
        os._exit(0)


def main():
    die_with_runner()
    model = pathlib.Path(sys.argv[1]).resolve()
    events, theirs = os.pipe()
    channel = fork_zygote(theirs)
    os.close(theirs)
    pair = Pair(model, channel)
    in_background(listen_to_watches, pair, events)
    in_background(listen_to_zygote, pair, channel)
    names = ["start", "request", "abort", "ask", "signal", "when", "kill", "end", "probe", "foreign"]
    handlers = {name: getattr(pair, name) for name in names}
    for command in commands():
        serve(handlers, command)
    pair.end()
    # What threads still wait for is nobody's any more.
    os._exit(0)


if __name__ == "__main__":
    main()
