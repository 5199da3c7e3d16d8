"""The page as an application: routes, what is asked of each request, and errors as pages."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qsl, urlencode

from anyio import CapacityLimiter, to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobs.commands.durations import BadText
from jobs.commands.failures import explain
from jobs.web.actions import ACTIONS, Action
from jobs.web.charts import due_chart, minutes_chart
from jobs.web.guard import HEADERS, Guard
from jobs.web.screens import SCREENS, Answer, Screen, Site, foremost
from pipeline.client.clock import clock_of
from pipeline.client.insight.recurring import SchedulesFollower
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text, late_text, spell
from pipeline.insight.overview import PATIENCE_S, OverviewFollower
from state import DelaylineError

_LOG = logging.getLogger(__name__)
HERE = Path(__file__).parent
FRAGMENT = "x-fragment"
"""With this header a script that brings a page up to date asks for what is inside its frame alone."""
_MOST_BYTES = 1 << 20
"""Of a form."""
_OPEN, _FILES = ("/healthz", "/enter"), "/static/"
"""Paths that everybody may see."""
_AT_ONCE = 4
"""So many answers are made at once; what else is asked for waits."""
_REMEMBERED = 10_000
"""So many forms are known that were sent already."""
_REFUSED = 400
"""From this status on an answer is a refusal."""
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Options:
    """How the page is served.

    Attributes:
        host: the address that it listens at.
        base: the path below which it is reached, behind a proxy; empty: at the root.
        token: what a browser has to show once; None: nothing.
        allow_commands: whether it offers actions.
    """

    host: str = "127.0.0.1"
    base: str = ""
    token: str | None = None
    allow_commands: bool = False


def templates(base: str = "") -> Environment:
    """The templates, which escape all that they are given."""
    loader = FileSystemLoader(HERE / "templates")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters |= {
        "time": iso_text,
        "spell": spell,
        "late": late_text,
        "number": _number,
        "place": _place,
        "shown": printable,
    }
    found.globals |= {
        "url": lambda path, /, **query: url(base, path, **query),
        "due_chart": due_chart,
        "minutes_chart": minutes_chart,
        "foremost": foremost,
    }
    return found


def url(base: str, path: str, /, **query: object) -> str:
    """The address of a page; what is None is left out."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    return f"{base}{path}?{urlencode(given, errors='surrogatepass')}" if given else f"{base}{path}"


def application(root: str, options: Options) -> Starlette:
    """The page of a warehouse."""
    guard = Guard(options.host, options.token, f"{root}\n{options.base}")
    site = Site(root, OverviewFollower(root, PATIENCE_S), SchedulesFollower(root), options.allow_commands)
    page = _Page(site, guard, options)
    routes = [Route(path, page.shows(screen)) for path, screen in SCREENS.items()]
    if options.allow_commands:
        routes += [Route(path, page.does(action), methods=["POST"]) for path, action in ACTIONS.items()]
    others = [
        Route("/healthz", lambda _: PlainTextResponse("ok\n")),
        Route("/enter", page.enter, methods=["GET", "POST"]),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    app = Starlette(
        routes=[*routes, *others],
        middleware=[Middleware(Guarded, guard=guard, base=options.base)],
        exception_handlers={404: page.not_found, 405: page.not_found},
    )
    # A proxy may know this page by another address than the one that would be made of the request.
    app.router.redirect_slashes = False
    return app


class Guarded:
    """Asks of each request what `Guard` says, and gives each answer the headers."""

    def __init__(self, app: ASGIApp, guard: Guard, base: str) -> None:
        self._app, self._guard, self._base = app, guard, base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A proxy may leave the base in the path, or take it off.
        if self._base and f"{scope['path']}/".startswith(f"{self._base}/"):
            scope = {**scope, "path": scope["path"].removeprefix(self._base) or "/"}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        refusal = self._refusal(Request(scope))
        await (self._app if refusal is None else refusal)(scope, receive, sent)

    def _refusal(self, request: Request) -> Response | None:
        if not self._guard.names_us(request.headers.get("host", "")):
            return PlainTextResponse("This page is served for another host.\n", 421)
        asked, path = request.headers, request.scope["path"]
        if not self._guard.may_ask(asked.get("sec-fetch-site", ""), asked.get("sec-fetch-mode", "")):
            return PlainTextResponse("Another page may not ask for this one.\n", 403)
        if path in _OPEN or path.startswith(_FILES) or _knows(self._guard, request):
            return None
        if "authorization" in asked:
            return PlainTextResponse("That is not the token.\n", 401)
        query = request.scope["query_string"].decode(errors="replace")
        then = f"{path}?{query}" if query else path
        return RedirectResponse(url(self._base, "/enter", then=None if then == "/" else then), 303)


class _Page:
    """Makes answers of what screens and actions say."""

    def __init__(self, site: Site, guard: Guard, options: Options) -> None:
        self._site, self._guard, self._options = site, guard, options
        self._templates = templates(options.base)
        self._limiter, self._sent = CapacityLimiter(_AT_ONCE), OrderedDict[str, None]()

    def shows(self, screen: Screen) -> Endpoint:
        """An answer that shows a screen."""

        async def shown(request: Request) -> Response:
            return await self._answered(request, lambda: screen(self._site, dict(request.query_params)))

        return shown

    def does(self, action: Action) -> Endpoint:
        """An answer to a form."""

        async def done(request: Request) -> Response:
            form = await _form(request)
            if form is None:
                return self._problem(request, 413, f"A form holds at most {_MOST_BYTES:,} bytes.")
            if not self._guard.may_change(request.headers.get("sec-fetch-site", ""), form.pop("secret", "")):
                return self._problem(request, 403, "This form is of another page, or of an earlier start of this one.")
            given, once = {**request.query_params, **form}, form.pop("once", "")
            given.pop("once", None)
            if once in self._sent:
                return self._problem(
                    request, 409, "This was done already; the page of commands says what became of it."
                )
            if once and given.get("sure") == "yes":
                self._sent[once] = None
                while len(self._sent) > _REMEMBERED:
                    self._sent.popitem(last=False)
            answer = await self._answered(request, lambda: action(self._site, given))
            if answer.status_code >= _REFUSED:
                self._sent.pop(once, None)
            return answer

        return done

    async def _answered(self, request: Request, make: Callable[[], Answer]) -> Response:
        try:
            return await to_thread.run_sync(lambda: self._made(request, make), limiter=self._limiter)
        except (DelaylineError, BadText, OSError) as error:
            return self._problem(request, 400, explain(error)[1])
        except Exception:  # noqa: BLE001 - whatever it is, the page goes on
            _LOG.exception("page %s", request.url.path)
            return self._problem(request, 500, "Something went wrong here; the log of this process says what.")

    def _made(self, request: Request, make: Callable[[], Answer]) -> Response:
        answer = make()
        if answer.then is not None:
            return RedirectResponse(url(self._options.base, answer.then), 303)
        return self._rendered(request, answer.template, answer.values)

    def _rendered(self, request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        frame = "fragment.html" if FRAGMENT in request.headers else "frame.html"
        now_ms = clock_of(self._site.root).wall()
        text = self._templates.get_template(template).render(
            frame=frame,
            site=self._site,
            known=_knows(self._guard, request),
            path=request.scope["path"],
            secret=self._guard.secret,
            once=token_urlsafe(12),
            now_ms=now_ms,
            **values,
        )
        return HTMLResponse(text.encode(errors="replace"), status, {"X-Now": iso_text(now_ms, "seconds")})

    def _problem(self, request: Request, status: int, text: str) -> Response:
        return self._rendered(request, "problem.html", {"title": "That did not work", "text": text}, status)

    async def not_found(self, request: Request, _error: Exception) -> Response:
        """There is no such page."""
        return self._problem(request, 404, f"There is no page {request.scope['path']}.")

    async def enter(self, request: Request) -> Response:
        """Ask for the token, and remember that it was named."""
        then = request.query_params.get("then", "/")
        values = {"title": "Enter", "wrong": request.method != "GET", "then": then}
        if request.method == "GET":
            return self._rendered(request, "enter.html", values)
        form = await _form(request) or {}
        if not self._guard.lets_in(form.get("token", "")):
            return self._rendered(request, "enter.html", values, 403)
        is_own = then.startswith("/") and not then.startswith(("//", "/\\"))
        answer = RedirectResponse(f"{self._options.base}{then if is_own else '/'}", 303)
        value = self._guard.pass_of(form["token"])
        is_secure = request.url.scheme == "https"
        path = self._options.base or "/"
        answer.set_cookie(self._guard.cookie, value, path=path, httponly=True, samesite="lax", secure=is_secure)
        return answer


def _knows(guard: Guard, request: Request) -> bool:
    """Whether a request may see what the page shows."""
    return guard.knows(request.cookies, request.headers.get("authorization", ""))


async def _form(request: Request) -> dict[str, str] | None:
    """The fields of a form, of each name the last; None: it is too long."""
    found = b""
    async for piece in request.stream():
        found += piece
        if len(found) > _MOST_BYTES:
            return None
    return dict(parse_qsl(found.decode(errors="replace"), keep_blank_values=True))


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _place(position: tuple[int, int] | None) -> str:
    return "-" if position is None else "{}:{}".format(*position)
