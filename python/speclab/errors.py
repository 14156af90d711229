"""The exception that the package raises for bad input."""


class Error(ValueError):
    """Something outside the program is wrong: a number, a file, a run, a command. The message says what was found and what was expected.

    An error of the C++ library also has the parts of its message. `what` names the wrong thing, `got` says what was found,
    `expected` what would be right, and `advice` what to do. In other errors these parts are "".
    """

    def __init__(self, message: str, what: str = "", got: str = "", expected: str = "", advice: str = "") -> None:
        super().__init__(message)
        self.what, self.got, self.expected, self.advice = what, got, expected, advice
