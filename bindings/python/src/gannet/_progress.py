"""Progress of long calls, as a line in a terminal or a notebook, or as calls of a function."""

from __future__ import annotations

import sys
import time
from typing import Callable, NamedTuple, TextIO, Union


class Progress(NamedTuple):
    """What a build is doing."""

    fraction: float
    """Of the whole call, 0 to 1; never falls."""
    phase: str
    """"copy", "k-NN graph", ..."""
    step: int
    """Place of the phase in the call, from 1."""


Wish = Union[bool, Callable[[Progress], object], None]


class Line:
    """Writes one line that changes, where the place that it goes to can do that; else a line a phase."""

    WIDTH = 24

    def __init__(self, to: TextIO | None = None) -> None:
        self.to = sys.stderr if to is None else to
        self.begun = time.monotonic()
        self.changing = bool(getattr(self.to, "isatty", lambda: False)()) or type(self.to).__module__.startswith(
            "ipykernel")  # a notebook obeys \r as a terminal does
        self.phase, self.length = "", 0

    def __call__(self, now: Progress) -> None:
        if not self.changing and now.phase == self.phase:
            return
        self.phase = now.phase
        full = int(self.WIDTH * now.fraction)
        bar = "#" * full + "." * (self.WIDTH - full)
        self.write(f"[{bar}] {now.fraction:4.0%} {now.phase}, {time.monotonic() - self.begun:.1f} s")

    def write(self, text: str) -> None:
        if self.changing:
            self.to.write("\r" + text.ljust(self.length))
            self.length = len(text)
        else:
            self.to.write(text + "\n")
        self.to.flush()

    def done(self, well: bool) -> None:
        if self.phase:
            end = f"done in {time.monotonic() - self.begun:.1f} s" if well else "stopped"
            self.write(f"[{('#' if well else '-') * self.WIDTH}] {end}")
            if self.changing:
                self.to.write("\n")
                self.to.flush()


class Reporter:
    """`with Reporter(wish) as report:` gives C a function of (fraction, phase, step), or None."""

    def __init__(self, wish: Wish) -> None:
        self.line = Line() if wish is True else None
        target = self.line if self.line is not None else wish or None
        if target is not None and not callable(target):
            raise TypeError(f"progress is {wish!r}; expected True, False, None or a function of a Progress")
        self.target = target

    def __enter__(self) -> Callable[[float, str, int], object] | None:
        if self.target is None:
            return None
        target = self.target
        return lambda fraction, phase, step: target(Progress(fraction, phase, step))

    def __exit__(self, kind: object, *_: object) -> None:
        if self.line is not None:
            self.line.done(well=kind is None)
