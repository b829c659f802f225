"""The description of the console's API: valid, true of a server, and what the front end is written with."""

import json
from pathlib import Path

import pytest

import hatch_build
from accord.console import routes
from accord.testing import call
from tests.judges.openapi import mistakes
from tests.server.conftest import HEADER, echo, serving

WEB = Path(__file__).parent.parent.parent / "web"
TOOL = WEB / "node_modules" / ".bin" / "openapi-typescript"


def test_the_document_is_valid_openapi() -> None:
    document = json.loads(routes.openapi_json())
    assert mistakes(document) == []
    names = [stated["operationId"] for item in document["paths"].values() for stated in item.values()]
    assert len(names) == len(set(names)) > 30
    assert {"/session", "/tasks/{task}", "/openapi.json"} <= document["paths"].keys()


async def test_a_server_describes_itself_with_the_same_routes() -> None:
    async with serving(echo, auth={"schemes": [HEADER]}) as app:
        answer = await call(app, method="GET", path="/api/openapi.json", headers={"Host": "localhost"})
    assert answer.status == 200
    assert answer.json()["paths"] == json.loads(routes.openapi_json())["paths"]


def test_the_document_in_the_tree_is_current() -> None:
    assert (WEB / "openapi.json").read_text() == routes.openapi_json(), "`make web` writes it"


@pytest.mark.skipif(not TOOL.exists(), reason="web/ is not installed here: make test")
def test_the_types_in_the_tree_are_current(tmp_path: Path) -> None:
    document, types = tmp_path / "openapi.json", tmp_path / "types.ts"
    document.write_text(routes.openapi_json())
    hatch_build.npm(WEB, ["exec", "--offline", "--", "openapi-typescript", str(document), "-o", str(types)])
    assert (WEB / "src" / "api" / "schema.gen.ts").read_text() == types.read_text(), "`make web` writes them"
