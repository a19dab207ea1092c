"""Imports SGLang once and forks a server for each command.

One thread, so that no fork finds a lock held. It speaks with the controller over a socket that
keeps messages apart; servers write what their watch sees into a pipe.
"""

import json
import os
import select
import signal
import time
import traceback

import cpu
import space
import spoil
import watch
from lines import die_with_runner

PERIOD_MS = 100

COMMON = [
    "--device=cpu",
    "--attention-backend=torch_native",
    "--sampling-backend=pytorch",
    "--grammar-backend=none",
    "--disable-overlap-schedule",
    "--skip-server-warmup",
    "--max-running-requests=8",
    "--context-length=8192",
    "--max-total-tokens=32768",
]
"""The first five are what runs on a CPU; the rest keeps a server small."""


def run(channel, events):
    """Serve the controller until it closes its end."""
    begun = time.monotonic()
    cpu.prepare()
    tell(channel, event="imported", took_s=round(time.monotonic() - begun, 2))
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        if poll.poll(PERIOD_MS):
            message = channel.recv(1 << 16)
            if not message:
                return
            fork(channel, events, json.loads(message))
        reap(channel)


def tell(channel, **fields):
    channel.send(json.dumps({"at": time.monotonic_ns(), **fields}).encode())


def reap(channel):
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        tell(channel, event="ended", pid=pid, status=os.waitstatus_to_exitcode(status))


def fork(channel, events, order):
    pid = os.fork()
    if pid:
        tell(channel, event="forked", server=order["server"], pid=pid)
        return
    channel.close()
    try:
        serve(events, order)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def serve(events, order):
    """Become the server that `order` describes."""
    die_with_runner()  # SGLang's own processes die with the server.
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((null, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Off for the zygote, or its import hook would have hooked what all servers are forked from:
    # each server takes the hook as any process does, by the plugin's entry point.
    os.environ.pop("INFLIGHTD_HOOK", None)
    os.environ.update(order["env"])
    if order["space"]:
        space.enter_whole(order["space"])
    watch.install(order["server"], events, order["idle"])
    spoil.install(order["spoil"])
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    run_server(prepare_server_args(COMMON + order["flags"]))
