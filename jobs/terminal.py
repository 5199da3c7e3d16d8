"""What commands print: one line each, whatever texts of strangers are in it."""

import typer

from pipeline.config.printed import printable


def echo(text: object = "", *, err: bool = False) -> None:
    """Print a line; control characters in it are spelled out."""
    typer.echo(printable(str(text)), err=err)
