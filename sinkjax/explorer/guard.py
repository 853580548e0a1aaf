"""Request filter: only a local browser, on the explorer's own page and with the token from its URL, gets a response."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)


class Guard:
    """Accepts only requests to the right host, from the page itself, with the token; removes the token from the path."""

    def __init__(self, app: Any, token: str, host: str):
        self.app, self.prefix, self.host = app, f"/{token}/", host
        self.headers = [
            (b"content-security-policy", POLICY.encode()),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-content-type-options", b"nosniff"),
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        from starlette import requests, responses

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self.headers]}
            await send(message)

        if why := self.refusal(scope):
            await responses.PlainTextResponse(why, status_code=403)(scope, receive, with_headers)
            return
        path = scope["path"][len(self.prefix) - 1 :]
        try:
            await self.app({**scope, "path": path, "raw_path": path.encode()}, receive, with_headers)
        except asyncio.CancelledError:  # the server is stopping before the rest of the request has arrived
            await responses.PlainTextResponse("the explorer has ended", status_code=503)(scope, receive, with_headers)
        except requests.ClientDisconnect:  # the page was closed before the rest of its request arrived
            pass

    def refusal(self, scope: Any) -> str:
        """Return the reason why a request is refused, or ""."""
        given = [(name, value.decode("latin-1")) for name, value in scope["headers"]]
        hosts, origins = ([value for name, value in given if name == wanted] for wanted in (b"host", b"origin"))
        if hosts != [self.host]:
            return f"this server is {self.host}, and answers under no other name"
        if origins not in ([f"http://{self.host}"], [] if scope["method"] in ("GET", "HEAD") else None):
            return "this request comes from another page"
        start = scope["path"][: len(self.prefix)]
        if not secrets.compare_digest(start.encode(), self.prefix.encode()):
            return "the token in the address is wrong: open the address that sinkjax explore printed"
        return ""
