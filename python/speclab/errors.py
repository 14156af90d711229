"""The exception that the package raises for bad input."""


class Error(ValueError):
    """Something outside the program is wrong: a number, a file, a run, a command. The message says what was found and what was expected.

    Errors of the C++ library have the same text in parts: `what` is wrong, `got`, `expected`, and `advice` (what to do).
    The parts are "" in errors that only have a message.
    """

    def __init__(self, message: str, what: str = "", got: str = "", expected: str = "", advice: str = "") -> None:
        super().__init__(message)
        self.what, self.got, self.expected, self.advice = what, got, expected, advice
