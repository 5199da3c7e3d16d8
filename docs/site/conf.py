"""How `make site` builds the pages: Sphinx, with search in the browser and no address of another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import delayline
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.logging import getLogger

_LOG = getLogger(__name__)

project = "delayline"
root_doc = "site/index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "delayline"
html_copy_source = False
html_extra_path = ["root"]
html_show_sphinx = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# What a command prints has no language, and mermaid is shown as text. The index of decisions names its pages.
suppress_warnings = ["misc.highlighting_failure", "toc.not_included"]
highlight_language = "text"

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
napoleon_use_ivar = True
napoleon_use_rtype = False


def page_of(name: str, docs: Path, folder: Path) -> str | None:
    """The page that a text in a folder of pages means by a name; None: it is a file of the repository and no page.

    Raises:
        FileNotFoundError: no file has the name.
    """
    for page in (Path(name.removeprefix("docs/")), folder / name):
        if (docs / page).is_file():
            return f"/{page.with_suffix('').as_posix()}"
    if (docs.parent / name).is_file():
        return None
    raise FileNotFoundError(name)


class PageLinks(SphinxTransform):
    """`kafka.md` in a text is a link to that page. A name that no file has is a warning, and the build fails."""

    default_priority = 5

    def apply(self, **_: Any) -> None:  # noqa: ANN401 - as docutils calls it
        """Look at each name in the text of a page."""
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext()
            if not name.endswith(".md") or isinstance(literal.parent, nodes.reference):
                continue
            try:
                page = page_of(name, Path(self.env.srcdir), Path(self.env.docname).parent)
            except FileNotFoundError:
                _LOG.warning("no page is called %s", name, location=literal)
                continue
            if page is not None:
                link = pending_xref("", reftype="doc", refdomain="std", reftarget=page, refexplicit=True, refwarn=True)
                link += nodes.literal(name, name)
                literal.replace_self(link)


_KINDS = {
    "Client and what it makes": ("Client", "Producer", "Consumer", "Reader", "Message", "MessageId"),
    "Functions": None,
    "Other classes": None,
    "Errors": None,
}
"""The parts of the page of the API; what is not named in one of them is sorted by what it is."""


def api(_: Sphinx, docname: str, source: list[str]) -> None:
    """Give the page of the API an entry for each name that the package gives."""
    if docname != "site/api":
        return
    named = {name for names in _KINDS.values() for name in names or ()}
    found: dict[str, list[str]] = {part: list(names or ()) for part, names in _KINDS.items()}
    for name in sorted(set(delayline.__all__) - named, key=str.lower):
        value = getattr(delayline, name)
        if isinstance(value, type) and issubclass(value, Exception):
            found["Errors"].append(name)
        elif isinstance(value, type):
            found["Other classes"].append(name)
        elif callable(value):
            found["Functions"].append(name)
    lines = [source[0]]
    for part, names in found.items():
        lines += [f"\n## {part}\n", "```{eval-rst}", ".. currentmodule:: delayline", ""]
        for name in names:
            if isinstance(getattr(delayline, name), type):
                lines += [f".. autoclass:: {name}", "   :members:", "   :inherited-members: Exception, Enum", ""]
            else:
                lines += [f".. autofunction:: {name}", ""]
        lines.append("```")
    source[0] = "\n".join(lines)


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.add_transform(PageLinks)
    app.connect("source-read", api)
