"""One server as the controller knows it: addresses, processes, signals."""

import os
import random
import signal
import socket

import space

class Server:
    """A forked server; `space` is the network namespace that it lives in, or none."""

    def __init__(self, name, role, host="127.0.0.1", inside=None):
        self.name = name
        self.role = role
        self.host = host
        self.space = inside
        self.port, self.bootstrap = ports(host, inside, 2)
        self.pid = None
        self.schedulers = {}
        """Their pids by rank, as they say themselves once they are built."""
        self.status = None

    def flags(self, model, backend, bootstrap, more):
        """What is said to the server beside what all of them are told."""
        flags = [
            f"--model-path={model}",
            f"--host={self.host}",
            f"--port={self.port}",
            f"--disaggregation-mode={self.role}",
            f"--disaggregation-transfer-backend={backend}",
            f"--disaggregation-bootstrap-port={bootstrap}",
        ]
        if self.role == "decode":
            # Any other backup of retracted requests wants memory that CUDA has pinned.
            flags.append("--disaggregation-decode-retraction-backup=none")
        return flags + more

    def processes(self):
        """The server's living processes, children before their parents."""
        if self.pid is None or self.status is not None:
            return []
        found, new = [], [self.pid]
        while new:
            pid = new.pop()
            found.insert(0, pid)
            new += children(pid)
        return found

    def signal(self, number, whole=False, rank=0):
        """Signal the scheduler of a rank, or all its processes."""
        targets = self.processes() if whole else [self.schedulers[rank]]
        for pid in targets:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def kill(self):
        self.signal(signal.SIGKILL, whole=True)


def children(pid):
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as line:
                found += map(int, line.read().split())
    except OSError:
        pass  # It has ended meanwhile.
    return found


def ports(host, inside, count):
    """Ports that the kernel has free, in the namespace of whoever will bind them: below those
    that it gives to whoever connects, which take one that waits for its server."""
    if inside:
        space.enter(inside)
    with open("/proc/sys/net/ipv4/ip_local_port_range") as bounds:
        lowest = int(bounds.read().split()[0])
    held = []
    while len(held) < count:
        try:
            held.append(socket.create_server((host, random.randrange(lowest // 2, lowest))))
        except OSError:
            continue  # Somebody has it.
    numbers = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return numbers
