"""The version of delayline; `pyproject.toml` has the same, and a test holds them together."""

VERSION = "0.1.0"
