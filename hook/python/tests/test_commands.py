"""What the agent asks of a room, through the binding and the real library."""

import ctypes
import os
import re
import time
import unittest
from pathlib import Path

import sglang_parts as parts
import test_hook
from held_table import COMMITTED, FAILED, HELD, OPEN, Agent
from inflightd_hook import _library
from inflightd_hook._worker import Worker

HEADER = Path(__file__).resolve().parents[2] / "marker/include/inflight.h"


class Asked(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = parts.opened()
        cls.agent = Agent(parts.table())

    def test_what_is_asked_is_read_and_answered(self):
        w, seq = self.worker, self.worker.append(7, "r")
        asked = w.asked()
        self.assertEqual((w.command(seq), w.carry_out(seq)), ("open", None))
        self.agent.hold(seq)
        self.assertEqual((w.asked(), w.command(seq)), (asked + 1, "held"))
        self.assertIs(w.serve(seq), False)
        self.assertIsNone(w.carry_out(seq))
        self.agent.commit(seq, reason="é" * 30, dwell_ms=1_250, tell=False)
        self.assertEqual(w.command(seq), "committed")
        fail = w.carry_out(seq)
        self.assertEqual((fail.dwell_s, fail.tell_peers), (1.25, False))
        self.assertEqual(fail.reason, "é" * 20)
        self.assertEqual((w.command(seq), self.agent.command(seq)[0]), ("carried_out", FAILED))
        self.assertIsNone(w.carry_out(seq), "said once")
        w.remove(seq, "failed")
        self.assertEqual(w.command(seq), "open")

    def test_a_hold_ends_with_a_poll_begun_after_it(self):
        w, seq = self.worker, self.worker.append(7, "r")
        self.agent.hold(seq, ahead_ms=0)
        begun = time.monotonic_ns()
        self.assertIs(w.polled(seq, begun), False)
        self.assertIs(w.polled(seq, begun + 150_000_000), True)
        self.assertEqual(self.agent.command(seq)[0], OPEN)
        self.agent.hold(seq)
        self.agent.commit(seq, reason="frozen", tell=True)
        self.assertEqual(self.agent.command(seq)[0], COMMITTED)
        self.assertEqual(w.carry_out(seq), (61.25, True, "frozen"))

    def test_a_release_lets_work_begin(self):
        w, seq = self.worker, self.worker.append(7, "r")
        self.agent.hold(seq)
        self.assertIs(w.serve(seq), False)
        self.agent.release(seq)
        self.assertIs(w.serve(seq), True)
        w.serve_end()

    def test_a_value_that_is_not_allowed_is_named(self):
        w = self.worker
        for call in (lambda: w.command(-1), lambda: w.carry_out(None), lambda: w.polled("7", 1)):
            with self.assertRaisesRegex(ValueError, "seq is"):
                call()
        with self.assertRaisesRegex(ValueError, "begun_ns is -1"):
            w.polled(1, -1)

    def test_a_child_of_fork_is_asked_nothing(self):
        w, seq = self.worker, self.worker.append(7, "r")
        self.agent.hold(seq)
        self.agent.commit(seq)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.silent(w, seq)
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(self.agent.command(seq)[0], COMMITTED)

    def silent(self, worker, seq):
        self.assertEqual((worker.asked(), worker.command(seq)), (0, "open"))
        self.assertIsNone(worker.carry_out(seq))
        self.assertIs(worker.polled(seq, time.monotonic_ns()), False)

    def test_a_worker_that_is_off_is_asked_nothing(self):
        self.silent(Worker(None, None), 1)

    def test_none_of_it_releases_the_gil(self):
        w, seq = self.worker, self.worker.append(7, "r")
        self.agent.hold(seq, ahead_ms=3_600_000)
        calls = (w.asked, lambda: w.command(seq), lambda: w.carry_out(seq),
                 lambda: w.polled(seq, time.monotonic_ns()))
        for call in calls:
            self.assertEqual(test_hook.Gil.runs_of_another_thread(self, call, 5000), 0)
        self.assertEqual(self.agent.command(seq)[0], HELD)


class Header(unittest.TestCase):
    """The binding against `inflight.h`."""

    def test_the_states_have_their_numbers(self):
        text = HEADER.read_text()
        body = re.search(r"enum inflight_command_state \{(.*?)\};", text, re.DOTALL).group(1)
        named = dict(re.findall(r"INFLIGHT_(\w+) = (\d+)", body))
        found = {name.lower(): int(number) for name, number in named.items()}
        self.assertEqual(found, {name: at for at, name in enumerate(_library.COMMANDS)})
        version = re.search(r"INFLIGHT_COMMANDS_VERSION (\d+)", text).group(1)
        self.assertEqual(int(version), _library.COMMANDS_VERSION)

    def test_a_fail_has_its_size(self):
        body = re.search(r"struct inflight_fail \{(.*?)\};", HEADER.read_text(), re.DOTALL).group(1)
        fields = re.findall(r"(\w+) (\w+)(?:\[(\d+)\])?;", body)
        self.assertEqual([field[1] for field in fields], [name for name, _ in _library.Fail._fields_])
        sizes = {"uint64_t": 8, "uint32_t": 4, "char": 1}
        for kind, name, length in fields:
            field = getattr(_library.Fail, name)
            self.assertEqual(field.size, sizes[kind] * int(length or 1))
        self.assertEqual(ctypes.sizeof(_library.Fail), 56)


if __name__ == "__main__":
    unittest.main()
