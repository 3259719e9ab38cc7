"""Failures that a person can act on."""


class UserError(Exception):
    """What went wrong, in one sentence, and what to do next; printed without a traceback."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
