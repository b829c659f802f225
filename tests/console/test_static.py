"""The console's pages: what is given out, with which headers, where, and what stands in for them."""

import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accord.console.static_files import StaticFiles
from accord.http.asgi import App, Receive, Scope, Send
from accord.server import composition
from accord.testing import Response, call
from tests.server.conftest import V1, echo, rpc, said, serving

PAGE = b"""<!doctype html>
<html><head>
  <link rel="icon" href="./icon.svg" />
  <script type="module" src="./assets/index-abc123.js"></script>
</head><body></body></html>
"""
SCRIPT = b"export const words = 'the same again and again';\n" * 200


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder of built files, beside a file that is nobody's business."""
    root = tmp_path / "_web"
    (root / "assets").mkdir(parents=True)
    (root / "index.html").write_bytes(PAGE)
    (root / "assets" / "index-abc123.js").write_bytes(SCRIPT)
    (root / "assets" / "style-abc123.css").write_bytes(b"a{}")
    (root / "icon.svg").write_bytes(b"<svg/>")
    (root / ".build.json").write_bytes(b"{}")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    return root


@pytest.fixture
def pages(built: Path) -> App:
    return StaticFiles(built, composition.FALLBACK)


async def get(app: App, path: str, method: str = "GET", **headers: str) -> Response:
    return await call(app, method=method, path=path, headers={"Host": "localhost:8000"} | headers)


def check_headers(answer: Response) -> None:
    """What every answer says."""
    policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["connect-src"] == "'self'"
    assert (policy["object-src"], policy["base-uri"], policy["frame-ancestors"]) == ("'none'",) * 3
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/console/", 200, "text/html; charset=utf-8"),
        ("/console/index.html", 200, "text/html; charset=utf-8"),
        ("/console/tasks/0192-abc", 200, "text/html; charset=utf-8"),
        ("/console/runs/x/", 200, "text/html; charset=utf-8"),
        ("/console/assets/index-abc123.js", 200, "text/javascript; charset=utf-8"),
        ("/console/assets/style-abc123.css", 200, "text/css; charset=utf-8"),
        ("/console/icon.svg", 200, "image/svg+xml"),
        ("/console/assets/gone-abc123.js", 404, "text/plain; charset=utf-8"),
        ("/console/assets/gone", 404, "text/plain; charset=utf-8"),
        ("/console/assets/", 404, "text/plain; charset=utf-8"),
        ("/console/tasks/gone.png", 404, "text/plain; charset=utf-8"),
    ],
)
async def test_files_are_given_out_and_deep_links_are_the_page(pages: App, path: str, status: int, kind: str) -> None:
    answer = await get(pages, path)
    assert (answer.status, answer.headers["content-type"]) == (status, kind)
    check_headers(answer)
    head = await get(pages, path, "HEAD")
    assert (head.status, head.headers, head.body) == (answer.status, answer.headers, b"")


async def test_hashed_files_are_immutable_and_the_page_revalidates(pages: App) -> None:
    script = await get(pages, "/console/assets/index-abc123.js")
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    for path in ("/console/", "/console/tasks", "/console/icon.svg"):
        answer = await get(pages, path)
        assert answer.headers["cache-control"] == "no-cache"
        again = await get(pages, path, **{"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
        check_headers(again)


async def test_a_new_build_is_given_out_at_once(pages: App, built: Path) -> None:
    before = await get(pages, "/console/")
    (built / "index.html").write_bytes(PAGE.replace(b"abc123", b"def4567"))
    after = await get(pages, "/console/", **{"If-None-Match": before.headers["etag"]})
    assert after.status == 200
    assert b"index-def4567.js" in after.body


async def test_files_are_compressed_if_accepted(pages: App) -> None:
    packed = await get(pages, "/console/assets/index-abc123.js", **{"Accept-Encoding": "br, gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == SCRIPT
    plain = await get(pages, "/console/assets/index-abc123.js")
    assert ("content-encoding" in plain.headers, plain.body) == (False, SCRIPT)
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    ("accepted", "used"),
    [("gzip;q=0", None), ("br, gzip;q=0.0", None), ("gzip;q=0.1", "gzip"), ("deflate, gzip;q=0.5", "gzip"), ("", None)],
)
async def test_files_are_compressed_as_far_as_that_is_wanted(pages: App, accepted: str, used: str | None) -> None:
    answer = await get(pages, "/console/assets/index-abc123.js", **{"Accept-Encoding": accepted})
    assert answer.headers.get("content-encoding") == used
    assert (answer.body if used is None else gzip.decompress(answer.body)) == SCRIPT


@pytest.mark.parametrize(
    "path",
    [
        "/console/../secret.txt",
        "/console/%2e%2e/secret.txt",
        "/console/..%2fsecret.txt",
        "/console/assets/../../secret.txt",
        "/console//etc/passwd.txt",
        "/console/%2fetc/passwd.txt",
        "/console/..\\secret.txt",
        "/console/..%5csecret.txt",
        "/console/assets/%00.js",
        "/console/.build.json",
        "/console/link.txt",
        "/console/assets/.",
        "/console/C:secret.txt",
    ],
)
async def test_nothing_beside_the_folder_is_given_out(pages: App, path: str) -> None:
    answer = await get(pages, path)
    assert answer.status == 404
    assert b"secret" not in answer.body.replace(b"secret.txt", b"")


async def test_only_reading(pages: App) -> None:
    answer = await get(pages, "/console/", "POST")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


# --- where the pages are --------------------------------------------------------------------------------------------


@pytest.fixture
async def app(built: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.setattr(composition, "BUILT", built)
    async with serving(echo) as application:
        yield application


def mounted(app: App, prefix: str) -> App:
    """The same below a prefix."""

    async def below(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "path": prefix + scope["path"], "root_path": prefix}, receive, send)

    return below


@pytest.mark.parametrize("prefix", ["", "/some/where"])
async def test_the_page_finds_its_files_from_every_address(app: App, prefix: str) -> None:
    served = mounted(app, prefix) if prefix else app
    for path in ("/console/", "/console/tasks/deep/link"):
        page = (await get(served, path)).body.decode()
        assert f'<meta name="accord-mount" content="{prefix}" />' in page
        assert re.findall(r'(?:src|href)="([^"]*)"', page) == [
            f"{prefix}/console/icon.svg",
            f"{prefix}/console/assets/index-abc123.js",
        ]
    bare = await get(served, "/console")
    assert (bare.status, bare.headers["location"]) == (308, f"{prefix}/console/")


async def test_path_prefixes_cannot_escape_the_build(app: App) -> None:
    page = (await get(mounted(app, '/"><script>x</script>'), "/console/")).body
    assert b"<script>x" not in page


HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("prefix", ["", "/some/where"])
async def test_a_browser_at_the_root_is_led_to_the_console(app: App, prefix: str) -> None:
    served = mounted(app, prefix) if prefix else app
    answer = await get(served, "/", **HTML, **{"Sec-Fetch-Mode": "navigate"})
    assert (answer.status, answer.headers["location"]) == (307, f"{prefix}/console/")
    assert answer.headers["cache-control"] == "no-store"
    check_headers(answer)
    assert (await get(served, "/", **HTML)).status == 307, "browsers do not always say how they ask"


@pytest.mark.parametrize(
    "headers", [{}, {"Accept": "*/*"}, {"Accept": "application/json"}, HTML | {"Sec-Fetch-Mode": "cors"}]
)
async def test_other_root_requests_reach_the_agent(app: App, headers: dict[str, str]) -> None:
    assert (await get(app, "/", **headers)).status not in (200, 307)


async def test_agents_are_called_at_the_root_as_ever(app: App) -> None:
    answer = await call(app, rpc("SendMessage", message=said("x")), headers=V1 | HTML)
    assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_server_without_a_console_has_no_pages() -> None:
    async with serving(echo, console={"enabled": False}) as application:
        for path in ("/console/", "/console/assets/index.js", "/api/session", "/api/openapi.json"):
            assert (await get(application, path)).status == 404
        assert (await get(application, "/", **HTML)).status != 307


# --- what stands in ---------------------------------------------------------------------------------------------------


@pytest.fixture
def unbuilt(tmp_path: Path) -> App:
    return StaticFiles(tmp_path / "nothing", composition.FALLBACK)


async def test_without_a_build_a_page_explains_how_to_build(unbuilt: App) -> None:
    page = await get(unbuilt, "/console/tasks/1")
    assert page.status == 200
    check_headers(page)
    assert b"make web" in page.body
    size = len(page.body)
    for name in re.findall(rb'(?:src|href)="/console/([^"]+)"', page.body):
        answer = await get(unbuilt, f"/console/{name.decode()}")
        assert answer.status == 200
        check_headers(answer)
        size += len(answer.body)
    assert size < 16_000


async def test_the_small_page_keeps_to_its_own_policy(unbuilt: App) -> None:
    page = (await get(unbuilt, "/console/")).body.decode()
    assert not re.search(r"\son\w+=|style=|<style|<script>", page)
    assert "innerHTML" not in (await get(unbuilt, "/console/page.js")).body.decode()
