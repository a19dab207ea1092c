"""An exception inside the hook stays inside, is counted, and ends only what raised it."""

import logging

log = logging.getLogger("inflightd_hook")


class Faults:
    """What went wrong inside the hook in this process."""

    def __init__(self):
        self.count = 0

    def contain(self, name, act, last=None):
        """``act`` as a call that never raises: the first ``Exception`` ends it for good.

        last: called once after that, to leave things in a sound state.
        The call gives what ``act`` gives, and None once it has ended.
        """
        return _Contained(self, name, act, last)

    def take(self, name, why):
        """Counts a fault and logs one line for it."""
        self.count += 1
        log.warning("inflightd: %s ended by a fault of the hook: %r", name, why, exc_info=why)


class _Contained:
    __slots__ = ("_faults", "_name", "_act", "_last")

    def __init__(self, faults, name, act, last):
        self._faults, self._name, self._act, self._last = faults, name, act, last

    def __call__(self, *args):
        try:
            return self._act(*args)
        except Exception as why:  # noqa: BLE001 - the engine must not see it
            self._end(why)
            return None

    def _end(self, why):
        self._act = _nothing
        self._faults.take(self._name, why)
        last, self._last = self._last, None
        if last is not None:
            try:
                last()
            except Exception as second:  # noqa: BLE001
                self._faults.take(f"the end of {self._name}", second)


def _nothing(*_args):
    return None
