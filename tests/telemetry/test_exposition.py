"""The page that Prometheus reads: what it says, in which form, to whom, and that it says it without the store."""

import asyncio
import re
import subprocess
import sys
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from accord.a2a import Caller, HostedAgent
from accord.auth.authentication import Presented
from accord.engine.hooks import Hooks
from accord.errors import AuthenticationFailed
from accord.http.operator_endpoints import MetricsPage
from accord.model import GetRequest, PushConfig, Task
from accord.server.pipeline import pipeline
from accord.service.host import Host
from accord.storage.commands import jobs
from accord.storage.commands.jobs import NewJob
from accord.storage.store import Store
from accord.telemetry import exposition as looked_up
from accord.telemetry import metrics as counted
from accord.telemetry.exposition import FRESH_SECONDS, REST_FACTOR, STORE_TIMEOUT_SECONDS, Exposition, StoreFigures
from accord.telemetry.metrics import BUCKETS, Metric, Metrics, MetricType
from accord.testing import Response, call
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, saying
from tests.engine.doubles import Meddler
from tests.telemetry.conftest import parrot

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TABLE = [found for module in (counted, looked_up) for found in vars(module).values() if isinstance(found, Metric)]
LABELS = {"agent", "operation", "binding", "dialect", "outcome", "state", "queue"}
"""What may be a label: there are few of each, and no caller makes up another."""


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Broken:
    """A store that does what it is told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked = 0

    async def read(self, *_: Any) -> Any:
        self.asked += 1
        assert self.error is not None
        raise self.error


def page(metrics: Metrics, store: Any, *, worker: str | None = None, **more: Any) -> MetricsPage:
    return MetricsPage(Exposition(metrics, StoreFigures(store, ["parrot"]), version="1.2.3", worker=worker), **more)


async def look(app: MetricsPage, accept: str = "", **more: Any) -> Response:
    return await call(app, path="/metrics", headers={"accept": accept}, **{"method": "GET", **more})


def families(response: Response) -> dict[str, Family]:
    """What the page says, by the names that are written on it."""
    assert response.status == 200
    return {family.name: family for family in parse_text(response.body.decode())}


def value(found: dict[str, Family], name: str, **labels: str) -> float | None:
    """One number on the page."""
    numbers = [
        sample.value
        for family in found.values()
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    assert len(numbers) <= 1
    return numbers[0] if numbers else None


async def hosted(hosting: Hosting, metrics: Metrics, **more: Any) -> tuple[Host, HostedAgent]:
    host = await hosting(parrot, hooks=Hooks(by_kind=metrics.notes), **more)
    return host, pipeline(host.default, "parrot", metrics=metrics)


# --- what it says ---------------------------------------------------------------------------------------------------


async def test_metrics_show_counters_and_gauges(hosting: Hosting) -> None:
    metrics = Metrics(["parrot"])
    host, agent = await hosted(hosting, metrics)
    await agent.send(saying("x"), ALICE)
    await host.node.store.do(jobs.enqueue, "acme", NewJob(kind="k", key="1", queue="nobody's"))
    found = families(await look(page(metrics, host.node.store)))
    send = {"agent": "parrot", "operation": "SendMessage"}
    assert value(found, "accord_requests_total", **send, binding="none", dialect="v1", outcome="ok") == 1
    assert value(found, "accord_request_seconds_count", **send) == 1
    assert value(found, "accord_request_seconds_bucket", **send, le="+Inf") == 1
    assert value(found, "accord_tasks_created_total", agent="parrot") == 1
    assert value(found, "accord_tasks_ended_total", agent="parrot", state="completed") == 1
    assert value(found, "accord_tasks_ended_total", agent="parrot", state="canceled") == 0
    assert value(found, "accord_store_up") == 1
    assert value(found, "accord_tasks", state="working") == 0
    assert value(found, "accord_jobs_waiting", queue="nobody's") == 1
    assert value(found, "accord_jobs_waiting", queue="parrot") == 0, "known, and empty"
    assert value(found, "accord_oldest_job_seconds", queue="timers") == 0
    assert value(found, "accord_webhooks", state="dead") == 0
    assert value(found, "accord_nodes") == 1
    assert value(found, "accord_info", version="1.2.3") == 1
    assert {"process_resident_memory_bytes", "process_open_fds", "python_info", "python_gc_collections"} <= found.keys()


async def test_buckets_are_cumulative(hosting: Hosting, metrics: Metrics) -> None:
    host, _ = await hosted(hosting, metrics)
    for seconds in (0.0001, 0.3, 0.3, 1000):
        metrics.run_seconds.observe(("parrot",), seconds)
    found = families(await look(page(metrics, host.node.store)))
    counts = {bound: value(found, "accord_run_seconds_bucket", agent="parrot", le=bound) for bound in map(str, BUCKETS)}
    assert (counts["0.001"], counts["0.25"], counts["0.5"], counts["300.0"]) == (1, 1, 3, 3)
    assert value(found, "accord_run_seconds_count", agent="parrot") == 4
    assert value(found, "accord_run_seconds_sum", agent="parrot") == pytest.approx(1000.6001)


async def test_documented_metrics_match_the_exposition(hosting: Hosting) -> None:
    metrics = Metrics()
    host, _ = await hosted(hosting, metrics)
    text = (await look(page(metrics, host.node.store))).body.decode()
    shown = dict(re.findall(r"^# TYPE (accord_\w+) (\w+)$", text, re.MULTILINE))
    assert shown == {found.name: found.kind.value for found in TABLE} | {"accord_info": "gauge"}


async def test_metrics_contain_no_ids_callers_or_content(hosting: Hosting) -> None:
    metrics = Metrics()
    host, agent = await hosted(hosting, metrics)
    caller = Caller(tenant="tenant-7", owner="owner-7", origin="origin-7", peer="192.0.2.7", scheme="scheme-7")
    task = await agent.send(saying("text-7", "message-7", context_id="context-7", configuration=AT_ONCE), caller)
    with pytest.raises(Exception, match="not found"):
        await agent.get(GetRequest(id="task-7"), caller)
    with pytest.raises(Exception, match="push"):
        await agent.push_set(PushConfig(id="hook-7", task_id="task-7", url="https://example.com/7"), caller)
    text = (await look(page(metrics, host.node.store))).body.decode()
    assert re.findall(r"\w+-7|192\.0\.2|example\.com", text) == []
    assert isinstance(task, Task)
    assert task.id not in text
    assert host.node.node_id not in text


def test_names_follow_the_conventions() -> None:
    assert len({found.name for found in TABLE}) == len(TABLE)
    for found in TABLE:
        assert re.fullmatch(r"accord(_[a-z]+)+", found.name)
        assert found.name.endswith("_total") == (found.kind is MetricType.COUNTER), found.name
        assert not found.name.endswith(("_count", "_sum", "_bucket", "_created", "_info")), found.name
        if found.kind is MetricType.HISTOGRAM:
            assert found.name.endswith("_seconds"), found.name
        assert set(found.labels) <= LABELS, found.name
        assert found.help
        assert not found.help.endswith(".")


# --- in which form --------------------------------------------------------------------------------------------------


async def test_a_reader_gets_the_form_that_it_asks_for(hosting: Hosting) -> None:
    metrics = Metrics(["parrot"])
    host, agent = await hosted(hosting, metrics)
    await agent.send(saying("x"), ALICE)
    app = page(metrics, host.node.store)
    plain = await look(app)
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    prometheus = f"{OPENMETRICS};q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
    modern = await look(app, prometheus)
    assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert modern.body.endswith(b"# EOF\n")
    said = {family.name for family in parse_openmetrics(modern.body.decode())}
    assert {found.name.removesuffix("_total") for found in TABLE} <= said


@pytest.mark.parametrize(
    "accept",
    ["*/*", "nonsense", "application/openmetrics-text; version=new", "text/plain; version=,;=", "a" * 5000, "é"],
)
async def test_an_odd_wish_gets_the_plain_form(accept: str, metrics: Metrics) -> None:
    found = await look(page(metrics, Broken(OSError())), accept.encode().decode("latin-1"))
    assert found.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "accord_store_up" in families(found)


async def test_the_page_is_for_reading_only_and_not_to_be_kept(metrics: Metrics) -> None:
    app = page(metrics, Broken(OSError()))
    refused = await look(app, method="POST")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    head = await look(app, method="HEAD")
    assert (head.status, head.body, int(head.headers["content-length"]) > 0) == (200, b"", True)
    assert head.headers["cache-control"] == "no-store"
    assert head.headers["connection"] == "close", "of several processes, the next look should reach another"


async def test_processes_report_their_own_metrics(hosting: Hosting) -> None:
    metrics = Metrics(["parrot"])
    host, agent = await hosted(hosting, metrics)
    await agent.send(saying("x"), ALICE)
    found = families(await look(page(metrics, host.node.store, worker="7")))
    shared = {found.name for found in vars(looked_up).values() if isinstance(found, Metric)}
    for family in found.values():
        for sample in family.samples:
            assert (sample.labels.get("worker") == "7") == (family.name not in shared), sample
    again = families(await look(page(metrics, host.node.store)))
    assert value(again, "python_gc_collections_total", generation="0") is not None, "nothing of it is left behind"


def test_the_metrics_library_is_loaded_on_first_use() -> None:
    imported = "import sys, accord.telemetry.exposition, accord.http.operator_endpoints"
    code = f"{imported}; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


# --- to whom --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "of", "status"),
    [
        (None, {}, 200),
        ({"admin"}, {}, 200),
        ({"admin"}, {"roams": True, "tenant": "acme"}, 200),
        ({"admin"}, {"tenant": "acme"}, 403),
        ({"user", "operator"}, {}, 200),
        ({"operator"}, {"tenant": "acme"}, 403),
        ({"user"}, {}, 403),
        (set(), {}, 403),
    ],
)
async def test_metrics_need_a_role_with_full_visibility(
    roles: set[str] | None, of: dict[str, Any], status: int, metrics: Metrics
) -> None:
    async def admit(presented: Presented) -> Caller:
        assert (presented.method, presented.target, presented.body) == ("GET", "/metrics", b"")
        return Caller(owner="alice", roles=None if roles is None else frozenset(roles), **of)

    assert (await look(page(metrics, Broken(OSError()), admit=admit))).status == status


async def test_refused_readers_get_a_challenge(metrics: Metrics) -> None:
    async def admit(presented: Presented) -> Caller:
        error = AuthenticationFailed()
        error.challenges = ('Basic realm="accord"',)
        raise error

    refused = await look(page(metrics, Broken(OSError()), admit=admit))
    assert (refused.status, refused.headers["www-authenticate"]) == (401, 'Basic realm="accord"')
    assert b"accord_" not in refused.body


# --- without the store ----------------------------------------------------------------------------------------------


async def test_without_the_store_the_rest_is_shown(
    hosting: Hosting, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    stores: list[Meddler] = []

    def between(store: Store) -> Meddler:
        stores.append(Meddler(store))
        return stores[-1]

    host, agent = await hosted(hosting, metrics, wrap=between)
    await agent.send(saying("x"), ALICE)
    stores[0].refuses = lambda name: name == "monitoring.count_waiting"
    found = families(await look(page(metrics, host.node.store)))
    assert value(found, "accord_store_up") == 0
    assert value(found, "accord_tasks_created_total", agent="parrot") == 1
    absent = {found.name for found in vars(looked_up).values() if isinstance(found, Metric)} - {"accord_store_up"}
    assert not absent & found.keys()
    assert [record.levelname for record in caplog.records if record.name == "accord.metrics"] == ["WARNING"]
    stores[0].refuses = lambda _: False
    assert value(families(await look(page(metrics, host.node.store))), "accord_store_up") == 1


async def test_failed_store_metrics_are_logged_and_omitted(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    found = families(await look(page(metrics, Broken(ZeroDivisionError("secret")))))
    assert value(found, "accord_store_up") == 0
    assert "secret" in caplog.text


async def test_slow_store_metrics_time_out(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        async def read(self, *_: Any) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(looked_up, "STORE_TIMEOUT_SECONDS", 0.01)
    assert value(families(await look(page(metrics, Silent()))), "accord_store_up") == 0
    assert STORE_TIMEOUT_SECONDS < 10, "after which Prometheus gives up"


# --- not too often --------------------------------------------------------------------------------------------------


class Counting(Meddler):
    """A store that takes a while to answer."""

    def __init__(self, store: Store, clock: Clock, seconds: float) -> None:
        super().__init__(store)
        self._clock, self._seconds = clock, seconds

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        self._clock.now += self._seconds
        return await super().read(*args, **kwargs)


@pytest.mark.parametrize(("took", "fresh"), [(0.0, FRESH_SECONDS), (3.0, 3.0 * REST_FACTOR)])
async def test_store_metrics_are_cached_longer_if_slow(hosting: Hosting, took: float, fresh: float) -> None:
    clock = Clock()
    host = await hosting(parrot)
    store = Counting(host.node.store, clock, took)
    looking = StoreFigures(store, clock=clock)
    first, *others = await asyncio.gather(*(looking.counts() for _ in range(5)))
    assert all(found is first for found in others)
    clock.now += fresh * 0.99
    assert await looking.counts() is first
    assert store.done == ["monitoring.count_waiting"]
    clock.now += fresh * 0.02
    assert await looking.counts() is not first
    assert store.done == ["monitoring.count_waiting"] * 2


async def test_store_metrics_are_retried_soon_after_an_outage(metrics: Metrics) -> None:
    clock, store = Clock(), Broken(OSError())
    looking: StoreFigures = StoreFigures(store, clock=clock)  # type: ignore[arg-type]  # it needs only `read`
    for _ in range(3):
        await looking.counts()
    clock.now += FRESH_SECONDS
    await looking.counts()
    assert store.asked == 2
