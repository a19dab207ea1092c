"""An exception inside the hook stays inside, is counted, and ends only what raised it."""

import logging

log = logging.getLogger("inflightd_hook")


class Faults:
    """What went wrong inside the hook in this process."""

    def __init__(self):
        self.count = 0
        self.ends = []
        """Called at each fault: the ends of what only a hook may do that is whole."""

    def contain(self, name, act, last=None):
        """``act`` as a call that never raises: the first ``Exception`` ends it for good.

        last: called once after that, to leave things in a sound state.
        The call gives what ``act`` gives, and None once it has ended.
        """
        acts = [act]

        def contained(*args):
            try:
                return acts[0](*args)
            except Exception as why:  # noqa: BLE001 - the engine must not see it
                acts[0] = _nothing
                self.take(name, why)
                self._leave(name, last)
                return None

        return contained

    def _leave(self, name, last):
        try:
            if last is not None:
                last()
        except Exception as why:  # noqa: BLE001
            self.take(f"the end of {name}", why)

    def take(self, name, why):
        """Counts a fault and logs one line for it."""
        self.count += 1
        log.warning("inflightd: %s ended by a fault of the hook: %r", name, why, exc_info=why)
        for end in list(self.ends):
            try:
                end()
            except Exception as more:  # noqa: BLE001
                self.count += 1
                log.warning("inflightd: an end after a fault: %r", more)


def _nothing(*_args):
    return None
