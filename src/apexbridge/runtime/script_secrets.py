"""Secrets of one script run: a call with placeholders, and the redaction of its result."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from apexbridge.activation.scripts import ScriptCall
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.sandbox.redaction import Redactor, StreamRedactor

OnOutput = Callable[[int, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSecrets:
    """A call with placeholders, and what redacts its result."""

    call: ScriptCall
    redactor: Redactor
    output: "RedactedOutput | None"

    def redact(self, result: ExecutionResult) -> ExecutionResult:
        """Redact output and files, as a last line: a script was never given a value."""
        if self.output is not None:
            self.output.finish()
        redact = self.redactor.redact
        return replace(
            result,
            stdout=redact(result.stdout),
            stderr=redact(result.stderr),
            produced=self.redactor.redact_all(result.produced),
            not_taken={
                self.redactor.redact_name(name): why for name, why in result.not_taken.items()
            },
        )


class RedactedOutput:
    """Redact live output, each stream for itself."""

    def __init__(self, redactor: Redactor, on_output: OnOutput) -> None:
        self._redactor, self._on_output = redactor, on_output
        self._streams = dict[int, StreamRedactor]()

    def __call__(self, stream: int, piece: bytes) -> None:
        """Pass on what cannot be a part of a value."""
        found = self._streams.setdefault(stream, StreamRedactor(self._redactor))
        if data := found.feed(piece):
            self._on_output(stream, data)

    def finish(self) -> None:
        """Pass on what was held back."""
        for stream, found in self._streams.items():
            if data := found.finish():
                self._on_output(stream, data)
