"""Front end's handle of a worker process: a socket to it, and detection of its exit.

The kernel reports the exit by a pidfd (Linux 5.3 and later), or else by polling ``waitpid``. The
end of the socket is not sufficient: a process forked by the model keeps it open, and a worker
closes it before it exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ramsis.serving.workers.messages import Unframed, framed, send_json

# Errors of starting a process, or of sharing memory with it, if the system lacks resources.
START_ERRORS = (OSError, MemoryError, subprocess.SubprocessError)

_CLOSED = "the worker process closed its connection"
_POLL_S = 0.05  # interval of ``waitpid`` polls, without a pidfd
_CONFIG_S = 1.0  # time limit for sending the configuration, which nearly fits the socket's buffer
_EXIT_S = 1.0  # wait for the exit code after the end of the socket
_READ = 65536  # largest read in bytes; messages are far shorter


class WorkerProcess:
    """Process that runs :mod:`ramsis.serving.workers.worker`.

    ``config`` is the first message to it. ``heard`` is called with each received message, and
    ``ended`` once with the cause, when the process has exited and all messages are read.
    """

    def __init__(
        self, config: dict[str, Any], heard: Callable[[bytes], object],
        ended: Callable[[str], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.dead: asyncio.Future[None] = self._loop.create_future()  # done when it is
        self._heard, self._ended = heard, ended
        self._reason, self._messages = "", Unframed()
        self._pidfd: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            self._channel: socket.socket | None = ours
            undo.callback(self._close)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "ramsis.serving.workers.worker",
                     str(theirs.fileno())],
                    pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                    stdout=sys.stderr.fileno() if _is_file(sys.stderr) else subprocess.DEVNULL,
                    process_group=0)  # Ctrl-C is for the front end
            self.pid = self._process.pid
            undo.callback(self._process.wait)
            undo.callback(self._kill_group)
            ours.settimeout(_CONFIG_S)
            send_json(ours, config)
            ours.setblocking(False)
            self._loop.add_reader(ours.fileno(), self.read)
            self._watch()
            undo.pop_all()

    def send(self, message: bytes) -> None:
        """Send a message; where that fails, the process is killed."""
        self._send(lambda channel: channel.send(framed(message)))

    def send_files(self, document: dict[str, Any], files: Sequence[int]) -> None:
        """Send a document with open files; where that fails, the process is killed."""
        self._send(lambda channel: send_json(channel, document, files))

    def _send(self, send: Callable[[socket.socket], object]) -> None:
        if self._channel is None:
            self.kill(_CLOSED)
            return
        try:
            send(self._channel)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is dead or about to exit, as reading tells
        except OSError as error:
            self.kill(f"the worker process cannot be reached ({error.strerror or error})")

    def read(self) -> None:
        """Read the messages that the process has sent."""
        if self._channel is None:
            return
        try:
            data = self._channel.recv(_READ)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        except OSError as error:
            self.kill(f"the worker process cannot be heard ({error.strerror or error})")
            return
        for message in self._messages.add(data):
            self._heard(message)
        if not data:
            self._close()  # most likely it is about to exit, and the exit tells the cause
            self._timer = self._loop.call_later(_EXIT_S, self.kill, _CLOSED)

    def kill(self, reason: str) -> None:
        """Kill the process; the first reason is the cause of its death."""
        self._reason = self._reason or reason
        self._kill_group()

    def end(self) -> None:
        """Kill the process, without a callback."""
        self._heard = self._ended = len  # which does nothing
        self._kill_group()

    def _kill_group(self) -> None:
        """Kill the process and its forks, while its process id cannot be reused."""
        if not self.dead.done():
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def _watch(self) -> None:
        """Start watching for the exit of the process."""
        try:
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._died)
        except (AttributeError, OSError):  # another system, a sandbox, no more open files
            self._close_pidfd()
            self._loop.call_later(_POLL_S, self._poll)

    def _poll(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(_POLL_S, self._poll)
        else:
            self._died()

    def _died(self) -> None:
        self._close_pidfd()
        self._kill_group()
        self.read()  # the end of its batch may have come with its own
        self._close()
        code = self._process.wait()
        self.dead.set_result(None)
        self._ended(self._reason or f"the worker process ended ({_cause(code)})")

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        channel, self._channel = self._channel, None
        if channel is not None:
            self._loop.remove_reader(channel.fileno())
            with contextlib.suppress(OSError):  # what is closed with an error is closed
                channel.close()

    def _close_pidfd(self) -> None:
        pidfd, self._pidfd = self._pidfd, None
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            with contextlib.suppress(OSError):
                os.close(pidfd)


def _cause(code: int) -> str:
    """Describe the exit code of a process."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # most real-time signals have no name
        return f"signal {-code}"


def _is_file(stream: Any) -> bool:
    """Return whether a stream has an open file descriptor."""
    try:
        return isinstance(stream.fileno(), int)
    except (AttributeError, OSError, ValueError):
        return False
