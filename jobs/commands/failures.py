"""What a command says when it fails: one line, and the exit code."""

FAILED, USAGE = 1, 2


def explain(error: Exception) -> tuple[int, str]:
    """Exit code and line for an error. A value that is out of range is a matter of usage, anything else a failure."""
    from pipeline.client.errors import BadValue  # noqa: PLC0415 - loads numpy, and only a failure needs it
    from pipeline.errors import BadSetting  # noqa: PLC0415 - the same
    from state import DelaylineError, InvalidArgument, OutOfRange  # noqa: PLC0415 - the same

    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, BadValue | BadSetting | InvalidArgument | OutOfRange):
        return USAGE, text
    if isinstance(error, DelaylineError):
        return FAILED, text
    return FAILED, f"{type(error).__name__}: {text}"


def one_line(reason: str) -> str:
    """A failed query's first line and the error that its stack traces, of two languages, name last: the cause.

    What stands between the languages (py4j) says only that something went wrong on the other side.
    """
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    named = [error for line in lines[1:] if (error := _named_error(line)) is not None]
    causes = [error for error in named if not error.startswith("py4j.")] or named
    return " ... ".join([*(line.partition(" Return Message: ")[0] for line in lines[:1]), *causes[-1:]])


def _named_error(line: str) -> str | None:
    """The error that a line of a stack trace names: `package.Type: text`, `SomeError: text`, `Caused by: ...`."""
    error = line.removeprefix("Caused by: ").removeprefix(": ")
    kind, colon, _ = error.partition(": ")
    name = kind.rpartition(".")[2]
    known = "." in kind or name.endswith(("Error", "Exception"))
    return error if colon and " " not in kind and name[:1].isupper() and known else None
