"""Answers the engine's requests with a proposer. core/decoding/drafting/outside/message.h describes the messages.

The engine is another process, and the proposer runs in the thread that serves. So the engine never waits for the
interpreter's lock, and an exception of the proposer keeps its traceback.
"""

import contextlib
import dataclasses
import selectors
import socket
import struct
import subprocess
from typing import Any

import numpy as np

from .errors import Error
from .proposals import BadAnswer, checked
from .time_limit import TooLate, time_limit

PROTOCOL = 1
HELLO, BEGIN, PROPOSE, OBSERVE, DONE, PROPOSAL, FAILURE = range(1, 8)
HEADER = struct.Struct("=II")  # kind, number of bytes that follow
CHECK_EVERY = 0.05  # seconds between looks at whether the engine still runs


@dataclasses.dataclass(frozen=True)
class Failure:
    """The first exception while the proposer ran."""

    error: BaseException
    method: str  #: of the proposer
    step: int | None  #: of the text, from 0; None while a text began
    turn: int


class Server:
    """Serves one run. `failure` is set when the proposer raises an exception or returns something that makes no sense.

    From then on every request is refused, and the engine is asked to end. A call of the proposer that takes longer than
    `longest` seconds is interrupted by an exception, if the server runs in the main thread (time_limit.py).
    """

    def __init__(self, proposer: Any, listener: socket.socket, longest: float) -> None:
        self.proposer = proposer
        self.listener = listener
        self.longest = longest
        self.failure: Failure | None = None
        self.vocab = 0
        self.turn = 0

    def serve(self, engine: subprocess.Popen[bytes]) -> None:
        """Answers until the engine has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            connections: set[socket.socket] = set()
            try:
                while True:
                    ready = selector.select(CHECK_EVERY)
                    if not ready and engine.poll() is not None:
                        return
                    for key, _ in ready:
                        if key.fileobj is self.listener:
                            connection = self.listener.accept()[0]
                            selector.register(connection, selectors.EVENT_READ)
                            connections.add(connection)
                            continue
                        connection = key.fileobj
                        assert isinstance(connection, socket.socket)
                        if not self._answer(connection, engine):
                            selector.unregister(connection)
                            connections.remove(connection)
                            connection.close()
            finally:
                for connection in connections:
                    connection.close()

    def _answer(self, connection: socket.socket, engine: subprocess.Popen[bytes]) -> bool:
        """Answers one request. False if the engine has closed the connection."""
        try:
            kind, size = HEADER.unpack(_receive(connection, HEADER.size))
            numbers = np.frombuffer(_receive(connection, size), np.int32)
        except (ConnectionError, EOFError):
            return False
        had_failed = self.failure is not None
        answer, content = self._handle(kind, numbers)
        if answer == FAILURE and not had_failed:  # only once, because a second signal would end the engine immediately
            engine.terminate()  # the engine ends after the current line (one prompt and seed), and keeps the finished lines
        try:
            connection.sendall(HEADER.pack(answer, len(content)) + content)
        except ConnectionError:
            return False
        return True

    def _handle(self, kind: int, numbers: np.ndarray) -> tuple[int, bytes]:
        """(kind, bytes) of the answer."""
        if kind == HELLO:
            return self._hello(*numbers.tolist())
        if kind not in (BEGIN, PROPOSE, OBSERVE):
            raise Error(f"the engine sent a request of kind {kind}. Use the binary of this package's version.")
        failure = self.failure
        if failure is None:
            method, step = "propose", None
            try:
                if kind == BEGIN:
                    method, self.turn = "begin", int(numbers[1])
                    self._call(method, numbers[3 : 3 + int(numbers[2])])
                    return DONE, b""
                if kind == PROPOSE:
                    step, k = int(numbers[1]), int(numbers[2])
                    with self._limited():
                        answer = self.proposer.propose(numbers[5:], k)
                    return PROPOSAL, checked(answer, k, self.vocab).message()
                method, step = "observe", int(numbers[1])
                self._call(method, int(numbers[2]), numbers[3:])
                return DONE, b""
            except BaseException as error:  # KeyboardInterrupt too: the engine must end before it is raised again
                failure = Failure(error, method, step, self.turn)
                self.failure = failure
        raised = failure.error
        text = str(raised) if isinstance(raised, BadAnswer | TooLate) else f"{type(raised).__name__}: {raised}"
        return FAILURE, text.encode("utf-8", "replace")[:4000]

    def _hello(self, version: int, vocab: int, batch: int, gamma: int) -> tuple[int, bytes]:
        if version != PROTOCOL or batch != 1:
            raise Error(
                f"the engine speaks version {version} for a batch of {batch}, this package version {PROTOCOL} for a batch of 1. "
                "Use the binary of this package's version."
            )
        self.vocab = vocab
        return DONE, b""

    def _call(self, method: str, *arguments: Any) -> None:
        """Calls a method that a proposer need not have."""
        own = getattr(self.proposer, method, None)
        if own is not None:
            with self._limited():
                own(*arguments)

    def _limited(self) -> contextlib.AbstractContextManager[None]:
        return time_limit(
            self.longest,
            f"no answer within {self.longest:g} s. The traceback says where the proposer was. "
            "If it only needs more time, give measure_proposer a larger time_limit",
        )


def _receive(connection: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left > 0:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
