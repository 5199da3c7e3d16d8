"""What a plain reading says of messages with keys: what waits, for whom, and what a newer one makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from state.unique import Mode

NEVER = -1
"""In the place of a time: a command cancelled it."""
TOGETHER = ("s", "u")
"""The subscriptions; the second one comes and goes."""


@dataclass
class Message:
    """A message.

    Attributes:
        name: its payload.
        key: its key.
        due: when it is due by ingest, ms.
        latest: to when whoever replaces it may be put off.
        sent_at: when ingest took it.
        to: when each subscription that is to get it gets it, by commands; those that have it are among them.
        came: the subscriptions that have it.
        replaced: a newer one took its place.
        is_taken: dispatch has it before it is due, so commands come too late.
    """

    name: str
    key: str | None
    due: int
    latest: int
    sent_at: int
    to: dict[str, int]
    came: set[str] = field(default_factory=set)
    replaced: bool = False
    is_taken: bool = False

    def open_to(self, subscription: str) -> bool:
        """Whether a subscription is to get it yet."""
        is_there = self.to.get(subscription, NEVER) != NEVER
        return is_there and subscription not in self.came and not self.replaced

    def waits(self, now: int, until: int) -> bool:
        """Whether a newer one finds it."""
        return not self.replaced and self.due > now and max(self.to.values(), default=NEVER) > until


@dataclass
class Given:
    """The last command: its id, the span by which it moved (None: it cancelled), and what it named."""

    command_id: str
    span: int | None
    named: list[tuple[Message, str, int]]


@dataclass
class Keys:
    """All messages of a topic.

    Attributes:
        longest: with `extend`, from publication to the latest time of a chain, ms.
        express: what is due so soon is with dispatch at once, ms.
        listeners: who listens.
    """

    longest: int
    express: int
    mode: Mode | None = None
    listeners: set[str] = field(default_factory=lambda: {TOGETHER[0]})
    messages: list[Message] = field(default_factory=list)
    sent: list[tuple[str, str | None, int, bool]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    given: Given | None = None

    def take(self, now: int) -> None:
        """Ingest takes what was sent, one after the other; then what is due comes."""
        for name, key, after, asks in self.sent:
            self._accept(name, key, now + after, now, asks=asks)
        self.sent = []
        for each in self.messages:
            each.came |= {who for who in each.to if each.open_to(who) and each.to[who] <= now}

    def _accept(self, name: str, key: str | None, due: int, now: int, *, asks: bool) -> None:
        latest = max(due, now + self.longest)
        until = now if self.mode == Mode.DROP else now + self.express
        own = [each for each in self.messages if key is not None and each.key == key and each.waits(now, until)]
        if self.mode == Mode.DROP and own:
            self.refused.append(name)
            return
        # Of what a command alone lets wait the chain is over.
        if self.mode == Mode.EXTEND and (ends := [each.latest for each in own if each.latest > until]):
            latest = min(ends)
            due = min(due, latest)
        for each in own if self.mode is not None or asks else ():
            each.replaced = True
        is_taken = now < due <= now + self.express
        self.messages.append(
            Message(name, key, due, latest, now, dict.fromkeys(self.listeners, due), is_taken=is_taken)
        )

    def named(self, key: str, who: str | None) -> list[tuple[Message, str, int]] | None:
        """What a command names; None: it would be too late for some of it."""
        own = [each for each in self.messages if each.key == key]
        wanted = [(each, name) for each in own for name in ((who,) if who else self.listeners) if each.open_to(name)]
        if any(each.is_taken for each, _ in wanted):
            return None
        return [(each, name, each.to[name]) for each, name in wanted]

    def command(self, command_id: str, span: int | None, named: list[tuple[Message, str, int]]) -> None:
        """Something is cancelled, or comes so much later."""
        for each, name, at in named:
            each.to[name] = NEVER if span is None else max(0, at + span)
        self.given = Given(command_id, span, named)

    def undo(self, now: int) -> None:
        """The last command is taken back, for what dispatch has not decided of."""
        assert self.given is not None
        for each, name, at in self.given.named:
            if self.given.span is None:
                is_left = not each.replaced and name in each.to and at > now
            else:
                is_left = each.open_to(name)
            if is_left:
                each.to[name] = at
        self.given = None

    def leave(self, who: str) -> None:
        """A subscription ends, or begins anew with what comes next."""
        self.given = None
        for each in self.messages:
            each.to.pop(who, None)

    @property
    def came(self) -> list[tuple[str, str]]:
        """What came to whom, also in an earlier life."""
        return sorted((who, each.name) for each in self.messages for who in each.came)

    def pending(self, who: str) -> dict[str, int]:
        """What waits for a subscription, and until when."""
        return {each.name: each.to[who] for each in self.messages if each.open_to(who)}
