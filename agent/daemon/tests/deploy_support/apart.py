"""A worker and its peer as pods have them: in a network namespace and with a user of their own.

The peer stops itself before it has read a byte, so the worker's one room is stuck. Says
`@ready PEER`, the peer's pid, and stays until its standard input ends.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys

from inflightd_hook import _library, open_worker

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
USER = 4000

libc = ctypes.CDLL(None, use_errno=True)


def enter_namespace():
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare: needs root")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def become_user():
    """As after the exec of a container's process: another user, and its own /proc files."""
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    libc.prctl(PR_SET_DUMPABLE, 1)


def peer(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        become_user()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        worker = open_worker("decode", "test", "1", identities=[("nixl_agent", "apart-decode")])
        connection.sendall(b"x")
        os.kill(os.getpid(), signal.SIGSTOP)
        worker.beat()


def main():
    # Before the user changes: it may not be allowed to read this environment.
    _library.load()
    enter_namespace()
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        peer(listener.getsockname()[1])
        return
    become_user()
    connection, _ = listener.accept()
    connection.recv(1)
    os.waitpid(child, os.WUNTRACED)
    connection.sendall(bytes(1000))
    worker = open_worker("prefill", "test", "1", identities=[("nixl_agent", "apart-prefill")])
    seq = worker.append(7, "rid-7", peers=[("nixl_agent", "apart-decode")], expected_bytes=100)
    worker.serve(seq)
    worker.post(seq, 100)
    print("@ready", child, flush=True)
    # A byte a beat, until the runner has had enough.
    while sys.stdin.read(1):
        worker.beat()
    os.kill(child, signal.SIGKILL)


main()
