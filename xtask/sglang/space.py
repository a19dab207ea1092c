"""Network namespaces for one thread, or for a process that is about to become a server."""

import ctypes
import os

CLONE_NEWNET = 0x40000000
CLONE_NEWNS = 0x00020000
MS_REC, MS_SLAVE, MNT_DETACH = 16384, 1 << 19, 2

_libc = ctypes.CDLL(None, use_errno=True)


def checked(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter(name):
    """This thread's sockets are from now on of the namespace `name`, as `ip netns` knows it."""
    space = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        checked(_libc.setns(space, CLONE_NEWNET), f"entering the namespace {name}")
    finally:
        os.close(space)


def enter_whole(name):
    """The same for a process, and its `/sys` shows that network: UCX looks for devices there."""
    enter(name)
    checked(_libc.unshare(CLONE_NEWNS), "a mount namespace")
    checked(_libc.mount(b"", b"/", b"none", MS_REC | MS_SLAVE, None), "private mounts")
    checked(_libc.umount2(b"/sys", MNT_DETACH), "taking /sys away")
    checked(_libc.mount(name.encode(), b"/sys", b"sysfs", 0, None), "mounting /sys")
