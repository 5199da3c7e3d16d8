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
    """A failed query's first line and the first error that its stack traces name, of two languages."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    causes = [line for line in lines[1:] if _names_an_error(line)]
    return " ... ".join([*lines[:1], *causes[:1]])


def _names_an_error(line: str) -> bool:
    """Whether a line of a stack trace names the error: `package.Type: text`, `SomeError: text`."""
    kind, colon, _ = line.partition(": ")
    name = kind.rpartition(".")[2]
    return (
        bool(colon)
        and " " not in kind
        and name[:1].isupper()
        and ("." in kind or name.endswith(("Error", "Exception")))
    )
