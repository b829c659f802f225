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
from accord.console.server_context import EndpointInfo, ServerContext
from accord.console.sessions import SignInMethods
from accord.console.sign_in import SignInApi
from accord.console.views import TaskVisibility
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

    def opened(self, gates: Gates, methods: SignInMethods, stack: AsyncExitStack) -> App:
        """Return the console's API, which runs until the stack is left."""
        self._server.feed.start()
        stack.push_async_callback(self._server.feed.stop)
        answers = ChatAnswers(self._server)
        stack.push_async_callback(answers.stop)
        flows = flows_of(self._server.agents)
        features = {
            "a2a": self._settings.console.a2a,
            "audit": self._settings.audit is not Audited.NONE,
            "registry": self._settings.registry.enabled,
            "workflows": bool(flows),
        }
        sign_in = self._sign_in(gates, methods, features, stack)
        runs = runs_of(flows, self._server.host, self._roles)
        return gates.api(routes_of(self._server, sign_in, answers, flows, runs), REFUSALS)

    def _sign_in(
        self, gates: Gates, methods: SignInMethods, features: Mapping[str, bool], stack: AsyncExitStack
    ) -> SignInApi:
        """Return the sign-in endpoints, with the issuers of the settings."""
        assert gates.sessions is not None  # the console always creates them
        issuers = {}
        if methods.issuers:
            from accord.console.oidc import Issuer

            # The operator names the issuers, also in private networks.
            outbound = HttpSession.strict(Policy(allow_private=True))
            stack.push_async_callback(outbound.close)
            ports = key_fetcher(outbound), token_poster(outbound)
            issuers = {name: Issuer(*settings, *ports) for name, settings in methods.issuers.items()}
        return SignInApi(
            self._server, gates.access, gates.admit, gates.sessions, methods, issuers, gates.audit, features
        )


def _slugs(agents: Mapping[str, Agent]) -> dict[str, str]:
    """Return the names in paths by agents' own. Members have the name of their workflow, and its visibility."""
    found: dict[str, str] = {}
    for slug, agent in agents.items():
        members = agent.members.values() if isinstance(agent, AgentWithMembers) else ()
        found |= dict.fromkeys((agent.profile.name, *(one.profile.name for one in members)), slug)
    return found
