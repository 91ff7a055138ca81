"""The one exception of this package: a sentence for the user, a stable reason for programs."""

from __future__ import annotations


class Failure(SystemExit):
    """Ends the process with exit code 1 and one sentence on standard error, never a traceback.

    It is a SystemExit because a missing driver or a foreign checkpoint is a matter between the
    user and the machine; the script's own bugs keep their tracebacks.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"anychip: {message}")
        self.reason = reason
        self.message = message
