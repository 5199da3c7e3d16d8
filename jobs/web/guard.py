"""Who may use the page, and what a browser may do with it.

A browser sends requests for whatever page asks it to. So each request has to name a host that the page is served for;
one that changes something has to come from a form of the page itself, which has a secret in it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

TOKEN = "DELAYLINE_WEB_TOKEN"  # noqa: S105 - the name of a variable
"""The variable of the environment that holds the token of a page on another address than the loopback."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What each answer says to the browser."""
_OWN = ("same-origin", "none")
"""Where a request may come from, as browsers say it: this page, or somebody who typed the address."""


@dataclass(frozen=True)
class Guard:
    """What is asked of requests.

    Attributes:
        host: the address that the page listens at.
        token: what a browser has to show once; None: nothing, on the loopback.
        page: names the page among those of one host: its warehouse and its base.
        secret: stands in the forms of this process.
    """

    host: str
    token: str | None = None
    page: str = ""
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def cookie(self) -> str:
        """The name of the cookie. Cookies know no ports, so two pages on one host have two names."""
        return f"delayline-{sha256(self.page.encode()).hexdigest()[:12]}"

    def may_ask(self, site: str, mode: str) -> bool:
        """Whether a browser may ask for a page: one of ours, or somebody who follows a link or types the address.

        Other pages would let it ask for what takes long, as a picture or a script.

        Args:
            site: where it comes from (`Sec-Fetch-Site`); empty when it does not say.
            mode: what it is for (`Sec-Fetch-Mode`).
        """
        return not site or site in _OWN or mode == "navigate"

    def names_us(self, host: str) -> bool:
        """Whether a `Host` is one of ours: the names of the loopback, or any where a token is asked for."""
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        return self.token is not None or name.strip("[]") in (*LOOPBACK, self.host)

    def knows(self, cookies: Mapping[str, str], authorization: str) -> bool:
        """Whether a request may see the page."""
        if self.token is None:
            return True
        bearer = authorization.removeprefix("Bearer ") if authorization.startswith("Bearer ") else ""
        return _same(cookies.get(self.cookie, ""), self.pass_of(self.token)) or _same(bearer, self.token)

    def lets_in(self, token: str) -> bool:
        """Whether somebody has named the token."""
        return self.token is not None and _same(token, self.token)

    def pass_of(self, token: str) -> str:
        """What the cookie holds: nothing from which the token can be told."""
        return hmac.new(self.secret.encode(), token.encode(), sha256).hexdigest()

    def may_change(self, site: str, secret: str) -> bool:
        """Whether a request that changes something comes from a form of this page.

        Args:
            site: what the browser says of where it comes from (`Sec-Fetch-Site`); empty when it says nothing.
            secret: what the form holds.
        """
        return (not site or site in _OWN) and _same(secret, self.secret)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())
