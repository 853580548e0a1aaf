"""SIGINT (Ctrl-C) and SIGTERM in a command: loops stop between calls, other code where it is; a second signal exits at once.

Python raises KeyboardInterrupt wherever the main thread is. In a garbage collector callback (JAX has one) the exception is
printed and lost; in the middle of a write it leaves a partial file. Loops therefore defer a signal (`held`) until they check for
it (`check`), an exception that is lost elsewhere is raised again, and none is raised while a native module is initialised,
because C++ that meets one aborts the process. Only commands install this (`handled`); callers of the
library keep Python's behaviour.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RETRY = 0.02  # seconds until a lost or deferred exception is raised again, outside the code that cannot pass it on
NATIVE = {ExtensionFileLoader.create_module.__code__, ExtensionFileLoader.exec_module.__code__}
SHOW_CURSOR = b"\x1b[?25h"  # shows the cursor, which a progress bar hides


class Interrupted(KeyboardInterrupt):
    """A signal requested the end of the command."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


@dataclass
class _State:
    """State of signal handling.

    number: the signal received, if any. holders: number of loops that defer it.
    """

    number: int | None = None
    holders: int = 0


_state = _State()


@contextmanager
def handled() -> Iterator[None]:
    """Make the first SIGINT or SIGTERM raise `Interrupted`, unless the process was started to ignore it."""
    if threading.current_thread() is not threading.main_thread():  # Python handles signals only in the main thread
        yield
        return
    heed = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    read, write = socket.socketpair()
    write.setblocking(False)
    before = {number: signal.signal(number, _receive) for number in heed}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, _raise)
    wakeup = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_at_the_second, args=(read, {*heed}), daemon=True).start()
    hook, sys.unraisablehook = sys.unraisablehook, _raise_again
    holders = _state.holders
    try:
        yield
        check()
    except BaseException as error:  # code in between may have turned it into another error
        if _state.number is None:
            raise
        raise Interrupted(_state.number) from error
    finally:
        try:
            _state.holders += 1  # from here on nothing is raised, because a signal in between would skip the rest
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = hook
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            write.close()
            _state.number, _state.holders = None, holders


@contextmanager
def held() -> Iterator[None]:
    """Defer signals: inside this context only `check` raises; the outermost context calls it at its end."""
    _state.holders += 1
    try:
        yield
    finally:
        _state.holders -= 1
    if not _state.holders:
        check()


def check() -> None:
    """Raise `Interrupted` if a signal was received."""
    if _state.number is not None:
        raise Interrupted(_state.number)


def received() -> int | None:
    """Return the received signal that makes the next `check` raise, or None, so that a loop can save its work first."""
    return _state.number


def receive(number: int) -> None:
    """Act as if this process had received a signal that a joined process received."""
    _state.number = _state.number or number


def _receive(number: int, frame: FrameType | None) -> None:
    _state.number = _state.number or number
    _raise(number, frame)


def _raise(number: int, frame: FrameType | None) -> None:
    if _state.holders:
        return
    if any(outer.f_code in NATIVE for outer, _ in traceback.walk_stack(frame)):
        signal.setitimer(signal.ITIMER_REAL, RETRY)
    else:
        check()


def _raise_again(lost: Any) -> None:
    """Replace `sys.unraisablehook`, which is called for an exception that nothing can catch."""
    if isinstance(lost.exc_value, Interrupted):
        signal.setitimer(signal.ITIMER_REAL, RETRY)
    else:
        sys.__unraisablehook__(lost)


def _end_at_the_second(read: socket.socket, heed: set[int]) -> None:
    """End the process at the second signal, from a thread, because the main one may be in a long computation."""
    count = 0
    with read:
        while numbers := read.recv(16):
            count += sum(number in heed for number in numbers)
            if count > 1:
                if sys.stderr.isatty():
                    os.write(2, SHOW_CURSOR)
                os._exit(128 + (_state.number or next(number for number in numbers if number in heed)))
