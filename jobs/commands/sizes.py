"""What a start chooses by itself: chosen, said, handed to the session."""

from collections.abc import Callable, Iterator, Sequence

from pipeline.config.profiles import Profile, fitted
from pipeline.config.session import PARTITIONS
from pipeline.config.sizing import Choice, SizingInputs, short_of_memory
from pipeline.config.spelling import spell
from pipeline.delta.tables import place
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.files import sync_files


def sized(warehouse: Warehouse, profile: Profile, echo: Callable[[str], None]) -> Profile:
    """The profile with what it leaves open chosen for a warehouse and a session.

    It says what it chose, and when memory is short. The session gets its shuffle partitions, and whether it waits for
    the disk.

    Raises:
        BadSetting: the warehouse states a rate that is none.
    """
    here = place(warehouse)
    whole, choices = fitted(profile, here)
    warehouse.spark.conf.set(PARTITIONS, str(whole.machine.partitions))
    sync_files(on=whole.options.settings.sync)
    for line in lines(here, choices):
        echo(line)
    short = short_of_memory(here.memory, str(warehouse.spark.conf.get("spark.driver.memory", "")))
    if short is not None:
        echo(short)
    return whole


def lines(here: SizingInputs, choices: Sequence[Choice]) -> Iterator[str]:
    """For people: what sizes were chosen for, then each as a profile would state it, with its reason."""
    if not choices:
        return
    machine = (
        f"{here.cores} cores, {here.memory / 1e9:.1f} GB{' (what the container leaves)' if here.is_limited else ''}"
    )
    yield f"Chosen for {here.rate:,} messages a second, segments of {spell(here.segment_ms)}, {machine}:"
    for each in choices:
        span = f" ({spell(each.value)})" if each.name.endswith("_ms") else ""
        yield f"  {each.name} = {each.value:_}{span}: {each.why}"
