"""A connection to itself inside a network namespace of its own: 1000 bytes sent and not read.

Says `@ready PORT`, and stays until its standard input ends.
"""

import ctypes
import fcntl
import socket
import struct
import sys

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1

libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(CLONE_NEWNET) != 0:
    raise OSError(ctypes.get_errno(), "unshare: needs root")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
listener = socket.create_server(("127.0.0.1", 0))
out = socket.create_connection(listener.getsockname())
inside, _ = listener.accept()
out.sendall(bytes(1000))
print("@ready", listener.getsockname()[1], flush=True)
sys.stdin.read()
