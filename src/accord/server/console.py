"""The console of a server: the API of its pages, and the live feed.

It only connects the parts of `console`, and is loaded with the first request of a page.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

from accord import __version__
from accord.a2a import HostedAgent
from accord.auth.audit import Audited
from accord.auth.roles import Roles
from accord.console.chat_answers import ChatAnswers
from accord.console.feed import Feed
from accord.console.routes import REFUSALS, routes_of
from accord.console.routing import ApiRoute
from accord.console.server_context import EndpointInfo, ServerContext
from accord.console.sessions import SignInMethods
from accord.console.sign_in import SignInSessions
from accord.console.task_rows import TaskVisibility
from accord.engine.agent import Agent, AgentWithMembers
from accord.engine.clock import SYSTEM
from accord.http.asgi import App
from accord.model import AgentCard
from accord.outbound import HttpSession, Policy
from accord.server.optional_services import key_fetcher, token_poster
from accord.server.registry import Gates
from accord.server.settings import Settings
from accord.server.settings_report import redact
from accord.server.workflow_triggers import flows_of, runs_of
from accord.service.host import Host


class Console:
    """The console of a server."""

    def __init__(  # one argument per service
        self,
        settings: Settings,
        agents: Mapping[str, Agent],
        host: Host,
        services: Mapping[str, HostedAgent],
        card_of: Callable[[str], AgentCard],
        served: EndpointInfo,
        roles: Roles,
        url: str,
    ) -> None:
        """Show `agents`, by the names in their paths."""
        visibility = TaskVisibility(roles, _slugs(agents))
        self._settings = settings
        self._roles = roles
        self._server = ServerContext(
            host=host,
            agents=agents,
            services=services,
            card_of=card_of,
            served=served,
            visibility=visibility,
            feed=Feed(host, visibility, SYSTEM.now_ms),
            terms=settings.console,
            url=url,
            version=__version__,
            now_ms=SYSTEM.now_ms,
            settings=partial(redact, settings),
            quotas=settings.limits,
        )

    def opened(self, gates: Gates, ways: SignInMethods, stack: AsyncExitStack) -> App:
        """Return the console's API, which runs until the stack is left."""
        self._server.feed.start()
        stack.push_async_callback(self._server.feed.stop)
        answers = ChatAnswers(self._server)
        stack.push_async_callback(answers.stop)
        return gates.api(self._routes(self._door(gates, ways, stack), answers), REFUSALS)

    def _routes(self, door: SignInSessions, answers: ChatAnswers) -> list[ApiRoute]:
        settings, flows = self._settings, flows_of(self._server.agents)
        features = {
            "a2a": settings.console.a2a,
            "audit": settings.audit is not Audited.NONE,
            "registry": settings.registry.enabled,
            "workflows": bool(flows),
        }
        runs = runs_of(flows, self._server.host, self._roles)
        return routes_of(self._server, door, answers, flows, runs, features)

    def _door(self, gates: Gates, ways: SignInMethods, stack: AsyncExitStack) -> SignInSessions:
        """Return the sign-in sessions, with the issuers of the settings."""
        assert gates.sessions is not None  # the console always creates them
        issuers = {}
        if ways.issuers:
            from accord.console.oidc import Issuer

            # The operator names the issuers, also in private networks.
            outbound = HttpSession.strict(Policy(allow_private=True))
            stack.push_async_callback(outbound.close)
            ports = key_fetcher(outbound), token_poster(outbound)
            issuers = {name: Issuer(*settings, *ports) for name, settings in ways.issuers.items()}
        return SignInSessions(gates.access, gates.admit, gates.sessions, ways, issuers, gates.audit)


def _slugs(agents: Mapping[str, Agent]) -> dict[str, str]:
    """Return the names in paths by agents' own. Members have the name of their workflow, and its visibility."""
    found: dict[str, str] = {}
    for slug, agent in agents.items():
        members = agent.members.values() if isinstance(agent, AgentWithMembers) else ()
        found |= dict.fromkeys((agent.profile.name, *(one.profile.name for one in members)), slug)
    return found
