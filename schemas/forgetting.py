"""How long the log of a table names files that went: Delta's properties of new tables.

Each checkpoint of the log names them for so long, so it grows with the time and with the files that go. A week is
Delta's default. VACUUM with the default hours keeps the files for as long.
"""

from typing import Final

_NAME = "delta.deletedFileRetentionDuration"

A_DAY: Final = {_NAME: "interval 1 day"}
"""Every file is merged or deleted in the end, tens of thousands a day. Nobody reads an old version of these tables, and
a file is committed as soon as it is written, so that vacuum spares what a log entry that is left has added."""
SIX_HOURS: Final = {_NAME: "interval 6 hours"}
"""Up to twenty files a second, which rounds of maintenance merge. Who reads these tables version by version, and was
away for longer, may find files gone if somebody ran VACUUM (decision 0070)."""
AN_HOUR: Final = {_NAME: "interval 1 hour"}
"""Several commits a second of a small file each, which goes within two hours. Clients follow the log for minutes."""
