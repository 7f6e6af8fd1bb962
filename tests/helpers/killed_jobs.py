"""Computations that die where they keep a state, and are started again until they end."""

from bindscope.fitting import checkpoint as checkpoints_module
from bindscope.fitting import descent
from bindscope.fitting.checkpoint import Checkpoint, Checkpoints


class KilledError(Exception):
    """What stands for the end of the process."""


def die_where_kept(monkeypatch):
    """Keep every state, and die after as many as `left` says; count those that were read."""
    for name in ("KEEP_S", "WORTH_S"):
        monkeypatch.setattr(checkpoints_module, name, -1.0)
    monkeypatch.setattr(descent, "KEEP_S", -1.0)
    write, read = Checkpoint.write, Checkpoint.read
    counted = {"left": 0, "read": 0}

    def dying_write(self, *state):
        write(self, *state)
        counted["left"] -= 1
        if not counted["left"]:
            raise KilledError

    def counted_read(self):
        state = read(self)
        counted["read"] += state is not None
        return state

    monkeypatch.setattr(Checkpoint, "write", dying_write)
    monkeypatch.setattr(Checkpoint, "read", counted_read)
    return counted


def killed_until_it_ends(deaths, make, folder, every):
    """Call `make` until no death interrupts it, each later than the last; return result, deaths."""
    for died in range(20):
        deaths["left"] = every * 2**died
        checkpoints = Checkpoints(folder / "weights.safetensors", "key")
        try:
            result = make(checkpoints)
        except KilledError:
            continue
        checkpoints.remove()
        assert list(folder.iterdir()) == []
        return result, died
    raise AssertionError
