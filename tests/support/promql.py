"""Which time series and labels an expression of PromQL names; and `promtool`, where it is installed.

`promtool` comes with Debian's package `prometheus`. Where it is, it has the last word on a rule; this reader looks for
names alone, and says nothing of types.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None,
    reason="promtool is not installed (apt-get install prometheus): it checks nothing here",
)
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_MATCHERS = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"\[[^\[\]]*\]|\boffset\s+\S+")
_LISTED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_NUMBER = re.compile(r"\b\d[\w.]*\b")
_WORDS = {"and", "or", "unless", "bool", "group_left", "group_right", "inf", "nan"}


def without_variables(expr: str) -> str:
    """An expression as Grafana sends it, the variables of a dashboard filled in."""
    return re.sub(r"\$(\w+|\{\w+\})", ".*", expr.replace("$__rate_interval", "5m").replace("$__range", "1h"))


def series_of(expr: str) -> set[str]:
    """The names of the time series: what is neither a function, nor a word of the language, nor a label or a text."""
    text = _MATCHERS.sub(" ", _TEXT.sub(" ", expr))
    text = _NUMBER.sub(" ", _LISTED.sub(" ", _RANGE.sub(" ", text)))
    found = ((each.group(), text[each.end() :].lstrip()[:1]) for each in _NAME.finditer(text))
    return {name for name, after in found if after != "(" and name.lower() not in _WORDS and not _aggregates(name)}


def _aggregates(name: str) -> bool:
    """Of `sum by (job) (x)` the list is gone by now, and `sum` may stand before `by` or before `(`."""
    return name in ("sum", "min", "max", "avg", "count", "topk", "bottomk", "quantile", "by", "without")


def labels_of(expr: str) -> set[str]:
    """The labels in matchers and in lists."""
    bare = _TEXT.sub(" ", expr)
    parts = [*_MATCHERS.findall(bare), *_LISTED.findall(bare)]
    return {name for part in parts for name in _NAME.findall(part)}


def refused_by_promtool(folder: Path, exprs: Iterable[str]) -> str:
    """What the checker says against expressions; empty: nothing."""
    rules = [{"record": f"expression:{number}", "expr": expr} for number, expr in enumerate(exprs)]
    path = folder / "expressions.yml"
    path.write_text(json.dumps({"groups": [{"name": "expressions", "rules": rules}]}), encoding="utf-8")
    return promtool("check", "rules", str(path))


def promtool(*words: str) -> str:
    """Run the checker; what it says when it refuses something, else nothing."""
    done = subprocess.run([PROMTOOL or "promtool", *words], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    return done.stdout + done.stderr if done.returncode else ""
