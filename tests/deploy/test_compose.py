"""compose.yaml: its structure, and its very commands with its variables on a real PostgreSQL with a password."""

import asyncio
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from accord.http import proxy_headers
from accord.server.http_server import GRANIAN_KILL_SECONDS
from accord.server.settings_loader import load, unknown_variables
from tests import databases
from tests.certificates import Authority
from tests.deploy.dockerfile import stages
from tests.deploy.nodes import ACCORD, Process, served
from tests.doc_blocks import accord as parsed_by_accord
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, ROOT, V1, environment, events, rpc, said, text_of

DEPLOY = ROOT / "deploy"
EXAMPLE = {
    name: value
    for name, _, value in (line.partition("=") for line in (DEPLOY / "compose.env.example").read_text().splitlines())
    if not name.startswith("#")
}
PASSWORD = "p@ss:w/rd#1"
ENV = EXAMPLE | {"POSTGRES_PASSWORD": PASSWORD}

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")


class Missing(Exception):
    """A variable that must be set."""


def interpolated(text: str, env: dict[str, str]) -> str:
    """Put variables in as compose does."""

    def value(match: re.Match[str]) -> str:
        if found := env.get(match["name"]):
            return found
        if match["kind"] != "-":
            raise Missing(f"{match['name']}: {match['rest']}")
        return match["rest"]

    return _VARIABLE.sub(value, text)


def read(env: dict[str, str]) -> dict[str, Any]:
    """What the file says with these variables."""

    def put_in(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: put_in(part) for name, part in value.items()}
        if isinstance(value, list):
            return [put_in(part) for part in value]
        return interpolated(value, env) if isinstance(value, str) else value

    found: dict[str, Any] = put_in(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))
    return found


COMPOSE = read(ENV)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NODE = SERVICES["accord"]


def seconds(text: str) -> int:
    assert text.endswith("s")
    return int(text[:-1])


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_example_names_required_variables() -> None:
    named = {match["name"]: match["kind"] for match in _VARIABLE.finditer((DEPLOY / "compose.yaml").read_text())}
    asked = {name for name, kind in named.items() if kind == "?"}
    assert set(EXAMPLE) == asked
    assert not list(unknown_variables(dict.fromkeys(named, "x"), ())), (
        "whoever has them in a shell can still run accord there"
    )
    for name in asked:
        with pytest.raises(Missing, match=name):
            read({other: value for other, value in ENV.items() if other != name})
    with pytest.raises(Missing, match="POSTGRES_PASSWORD"):
        read(EXAMPLE)  # as it is copied, nobody has a password


DIGEST = f"sha256:{'0123456789abcdef' * 4}"


def test_every_image_that_is_pulled_can_be_pinned_by_its_digest(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/asked"\necho {DIGEST}\n')
    docker.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = ["sh", str(DEPLOY / "pin.sh")]
    done = subprocess.run(script, env=env, capture_output=True, text=True, check=True, timeout=BOUND_SECONDS)
    pins = dict(line.split("=", 1) for line in done.stdout.splitlines())
    build, final = stages(DEPLOY / "Dockerfile")
    images = {
        "BUILD_IMAGE": build.base,
        "BASE_IMAGE": final.base,
        "POSTGRES_IMAGE": SERVICES["db"]["image"],
        "NGINX_IMAGE": SERVICES["proxy"]["image"],
    }
    assert pins == {name: f"{image}@{DIGEST}" for name, image in images.items()}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [f"buildx imagetools inspect --format {{{{.Manifest.Digest}}}} {images[name]}" for name in pins]
    services = read(ENV | pins)["services"]
    pulled = [services["db"]["image"], services["proxy"]["image"], *services["accord"]["build"]["args"].values()]
    assert sorted(pulled) == sorted(pins.values())
    assert [one["image"] for one in services.values() if "build" not in one] == pulled[:2], "no other image is pulled"


def test_everything_that_is_referred_to_is_there() -> None:
    assert set(COMPOSE) == {"name", "x-accord", "services", "volumes", "secrets"}
    for service in SERVICES.values():
        for other, terms in service.get("depends_on", {}).items():
            assert terms["condition"] in ("service_healthy", "service_completed_successfully")
            if terms["condition"] == "service_healthy":
                assert SERVICES[other]["healthcheck"]["test"][0] == "CMD"
            else:
                assert SERVICES[other]["restart"] == "no", "it would never be done"
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).is_file()
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
    build = NODE["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_only_the_proxy_is_public_and_nodes_are_restricted() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    for name in ("accord", "upgrade"):
        service = SERVICES[name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert "no-new-privileges:true" in service["security_opt"]
        assert PASSWORD not in service["environment"]["ACCORD_STORE"], "addresses are shown, passwords are not"


def test_several_nodes_have_the_time_to_stop() -> None:
    assert NODE["deploy"]["replicas"] == 3
    server = load(DEPLOY / "image" / "accord.toml", {}).settings.server
    longest = server.drain_seconds + server.grace_seconds + GRANIAN_KILL_SECONDS
    assert seconds(NODE["stop_grace_period"]) > longest
    assert server.drain_seconds >= seconds(NODE["healthcheck"]["interval"])


def test_the_commands_are_commands() -> None:
    for name in ("accord", "upgrade"):
        parsed_by_accord(SERVICES[name]["command"])


# --- what it does -----------------------------------------------------------------------------------------------------


def ask_for_password(rules: Path) -> None:
    rules.write_text(f"local all accord scram-sha-256\n{rules.read_text()}")


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A PostgreSQL as the service db makes it: the user and the database accord, with a password."""
    with databases.served() as server:

        async def prepare() -> None:
            connection = await asyncpg.connect(server.get_uri())
            quoted = await connection.fetchval("SELECT quote_literal($1::text)", PASSWORD)
            await connection.execute(f"CREATE ROLE accord LOGIN PASSWORD {quoted}")
            await connection.execute("CREATE DATABASE accord OWNER accord")
            await asyncio.to_thread(ask_for_password, Path(await connection.fetchval("SHOW hba_file")))
            await connection.execute("SELECT pg_reload_conf()")
            await connection.close()

        asyncio.run(prepare())
        yield server.get_uri().replace("postgres:@/postgres", "accord@/accord")


@pytest.fixture
def env(database: str) -> dict[str, str]:
    """The variables of a node, with the address that the database has here."""
    given: dict[str, str] = dict(NODE["environment"])
    assert given["ACCORD_STORE"] == "postgresql://accord@db/accord"
    here = {"ACCORD_STORE": database, "ACCORD_SERVER__HOST": "127.0.0.1", "ACCORD_SERVER__DRAIN_SECONDS": "0.5"}
    return given | {"ACCORD_CONFIG": str(DEPLOY / "image" / "accord.toml")} | here


def run(folder: Path, *arguments: str, **env: str) -> str:
    done = subprocess.run(
        [ACCORD, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_SECONDS,
        cwd=folder,
        env=environment(folder, **env),
    )
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return done.stdout


def ask(node: Process, method: str, key: str, **params: Any) -> dict[str, Any]:
    headers = V1 | {"X-API-Key": key}
    answer = httpx.post(f"{node.url}/", json=rpc(method, **params), headers=headers, timeout=BOUND_SECONDS)
    result: dict[str, Any] = answer.json()["result"]
    return result


def test_its_nodes_share_the_database_and_leave_in_good_order(env: dict[str, str], tmp_path: Path) -> None:
    assert "applied" in run(tmp_path, *SERVICES["upgrade"]["command"], **env)
    assert "up to date" in run(tmp_path, *SERVICES["upgrade"]["command"], **env)
    made = run(tmp_path, "apikeys", "create", "--name", "me", "--owner", "me", "--role", "admin", "-o", "json", **env)
    key = json.loads(made)["key"]
    command = [ACCORD, *NODE["command"]]
    with served(tmp_path, [command] * NODE["deploy"]["replicas"], env) as nodes:
        for node in nodes:
            healthy(node)
        task = ask(nodes[0], "SendMessage", key, message=said("hello"))["task"]
        assert text_of(task) == "hello"
        for node in nodes[1:]:
            assert ask(node, "GetTask", key, id=task["id"]) == task
        card = httpx.get(f"{nodes[2].url}/.well-known/agent-card.json", timeout=BOUND_SECONDS).json()
        assert card["url"].startswith(f"https://{ENV['HOST_NAME']}")


def healthy(node: Process) -> None:
    """Run the health check of the service."""
    word, program, script, path = NODE["healthcheck"]["test"]
    assert (word, program, script) == ("CMD", "python", "/opt/accord/healthcheck.py")
    check = [sys.executable, str(DEPLOY / "image" / Path(script).name), path]
    assert subprocess.run(check, env=node.env, check=False, timeout=BOUND_SECONDS).returncode == 0


# --- the proxy --------------------------------------------------------------------------------------------------------

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


def test_the_proxy_passes_streams_on_as_they_come() -> None:
    conf = (DEPLOY / "nginx.conf").read_text()
    assert "proxy_buffering off;" in conf
    quiet = re.search(r"proxy_read_timeout (\d+)s;", conf)
    assert quiet is not None
    assert int(quiet[1]) > 2 * 15, "a comment comes every 15 seconds"
    assert re.search(r"set \$nodes accord:8000;", conf), "the service, and the port of the image"
    for name in ("tls_cert", "tls_key"):
        assert f"/run/secrets/{name};" in conf
        assert name in SERVICES["proxy"]["secrets"]


def test_the_proxy_replaces_or_removes_every_header_that_is_believed() -> None:
    conf = (DEPLOY / "nginx.conf").read_text()
    believed = re.findall(r'b"(x-forwarded-[a-z]+)"', Path(proxy_headers.__file__).read_text())
    assert len(believed) == 5
    documented = re.findall(
        r'^(?:verified_)?header = "(.+)"', (ROOT / "docs/how-to/authentication.md").read_text(), re.M
    )
    for header in {*believed, *documented}:
        (value,) = re.findall(rf"^ +proxy_set_header {header} (.+);$", conf, re.M | re.I)
        assert value == '""' or value.startswith("$")
        assert "proxy_add" not in value


@pytest.mark.skipif(NGINX is None, reason="there is no nginx on this machine")
def test_nginx_itself_does_so(tmp_path: Path) -> None:
    """Its own words, but for the addresses: events come through one by one over TLS, before the task has ended."""
    authority, port, node_port = Authority(tmp_path), free_port(), free_port()
    own = authority.server()
    conf = (DEPLOY / "nginx.conf").read_text()
    here = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "http2 on;": "",  # older ones say it otherwise
        "/run/secrets/tls_cert": str(own.certificate),
        "/run/secrets/tls_key": str(own.key),
        "accord:8000": f"127.0.0.1:{node_port}",
    }
    for old, new in here.items():
        assert old in conf
        conf = conf.replace(old, new)
    temp = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in ("proxy", "client_body", "fastcgi", "uwsgi", "scgi")
    )
    whole = f"daemon off;\npid {tmp_path}/pid;\nerror_log {tmp_path}/error.log;\nevents {{}}\n"
    whole += f"http {{\naccess_log off;\n{temp}{conf}\n}}\n"
    (tmp_path / "nginx.conf").write_text(whole)
    target = f"{ROOT / 'tests' / 'serve' / 'agents.py'}:halting"
    settings = tmp_path / "own.toml"
    settings.write_text(
        '[[auth.schemes]]\ntype = "header"\nname = "X-Secret"\n'
        '[[auth.schemes.secrets]]\nsecret = "0123456789abcdef"\nowner = "me"\n'
    )
    command = [ACCORD, "serve", target, "--behind-proxy", "--config", str(settings)]
    with served(tmp_path, [[*command, "--port", str(node_port)]], {}, [node_port]):
        assert NGINX is not None
        proxy = subprocess.Popen([NGINX, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
        try:
            go, seen = tmp_path / "go", []
            body = rpc("SendStreamingMessage", message=said(str(go)))
            url, verify = f"https://localhost:{port}/", ssl.create_default_context(cafile=str(authority.certificate))
            reached(url, verify)
            with httpx.Client(verify=verify, timeout=BOUND_SECONDS) as http:
                card = http.get(f"{url}.well-known/agent-card.json").json()
                with http.stream("POST", url, json=body, headers=V1 | {"X-Secret": "0123456789abcdef"}) as response:
                    for _, event in events(response):
                        seen.append(event)
                        if "artifactUpdate" in event:
                            go.touch()  # so it was here before there was a second one
            assert seen[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
            assert card["name"] == "halting"
        finally:
            proxy.terminate()
            proxy.wait(BOUND_SECONDS)


def reached(url: str, verify: ssl.SSLContext) -> None:
    """Wait until the proxy answers."""
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        try:
            httpx.get(f"{url}healthz", verify=verify, timeout=BOUND_SECONDS)
            return
        except httpx.ConnectError:
            continue
    raise AssertionError("nobody answers")
