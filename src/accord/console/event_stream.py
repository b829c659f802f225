"""`GET /api/events`: the live feed as server-sent events."""

from accord.console import EVENTS
from accord.console.routing import ApiReply, ApiRequest, ApiRoute
from accord.console.server_context import ServerContext
from accord.errors import InvalidParams
from accord.http import sse
from accord.http.asgi import Headers

TOPIC = "task:"
MAX_TOPICS = 50

HEADERS: Headers = [(name, value) for name, value in sse.STREAM_HEADERS if name != b"cache-control"]
"""Stream headers, without the one that every console response has."""


class EventsApi:
    """The live feed over HTTP."""

    def __init__(self, house: ServerContext) -> None:
        """Create the handlers for `house`."""
        self._house = house

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        return (ApiRoute("GET", EVENTS, self.listen),)

    async def listen(self, asked: ApiRequest) -> ApiReply:
        """Stream the live feed, after the event in `Last-Event-ID` or `after`, with log growth of the tasks in
        `topics`.
        """
        after = sse.last_event_id(asked.scope)
        topics = [topic for given in asked.query.get("topics", []) for topic in given.split(",") if topic]
        if len(topics) > MAX_TOPICS or not all(topic.startswith(TOPIC) and topic.isprintable() for topic in topics):
            raise InvalidParams(f"Topics are up to {MAX_TOPICS} tasks, as task:ID,task:ID")
        wanted = frozenset(topic.removeprefix(TOPIC) for topic in topics)
        return ApiReply(stream=self._house.feed.stream(asked.known, after, wanted), headers=HEADERS)
