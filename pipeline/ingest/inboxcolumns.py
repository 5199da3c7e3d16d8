"""The columns of the inbox as its producers left them: more than ours are ignored, ours have to be there."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from pipeline.config.errors import InboxColumn
from pipeline.delta.logs.logstore import Head
from schemas import INBOX

_LOG = logging.getLogger(__name__)


def check_columns(head: Head) -> None:
    """Look at the columns of the inbox once; those that nobody here knows are named in one line of the log.

    Raises:
        InboxColumn: one of ours is gone, or has another type.
    """
    found = {each["name"]: _type(each) for each in json.loads(head.metadata["schemaString"])["fields"]}
    wanted = {each["name"]: _type(each) for each in json.loads(INBOX.columns.json())["fields"]}
    for name, kind in wanted.items():
        if found.get(name) != kind:
            raise InboxColumn(name, found.get(name), kind)
    unknown = [name for name in found if name not in wanted]
    if unknown:
        _LOG.warning("inbox: columns that are not read: %s", ", ".join(unknown))


def _type(field: Mapping[str, Any]) -> str:
    kind = field["type"]
    if isinstance(kind, str):
        return kind
    parts = (str(kind[name]) for name in ("keyType", "valueType", "elementType") if name in kind)
    return f"{kind['type']}<{', '.join(parts)}>"
