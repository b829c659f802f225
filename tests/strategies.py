"""Hypothesis strategies for the model: any value that an agent or caller could hold."""

from typing import Any

from hypothesis import strategies as st

from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    ApiKeyScheme,
    Artifact,
    ArtifactUpdate,
    Authentication,
    AuthorizationCodeFlow,
    CancelRequest,
    CardProfile,
    CardRequest,
    CardSignature,
    ClientCredentialsFlow,
    DeviceCodeFlow,
    Event,
    GetRequest,
    HttpAuthScheme,
    ImplicitFlow,
    Message,
    MessageUpdate,
    MutualTlsScheme,
    OAuth2Scheme,
    OAuthFlows,
    OpenIdConnectScheme,
    Part,
    PasswordFlow,
    PushConfig,
    PushDeleteRequest,
    PushFormat,
    PushGetRequest,
    PushListRequest,
    PushPage,
    Role,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
    SendConfiguration,
    SendRequest,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
    TaskState,
    TaskStatus,
)
from accord.model.base import timestamp_ms

# Any text that UTF-8 can carry; surrogates are no characters.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = st.text("abcdefghijklmnop0123456789-_.", min_size=1, max_size=12)
urls = ids.map(lambda name: f"https://example.com/{name}")
timestamps = st.integers(0, 4_102_444_799_999).map(timestamp_ms)
media_types = st.sampled_from(["text/plain", "application/json", "image/png", "text/markdown"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
# User metadata; the keys that dialects give a meaning to are prefixed away, their meaning has tests of its own.
metadata = st.none() | st.dictionaries(texts.map(lambda key: "m" + key), json_values, max_size=2)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def tuples_of(strategy: st.SearchStrategy[Any], low: int = 0, high: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, min_size=low, max_size=high).map(tuple)


parts = st.one_of(
    st.builds(Part, text=texts, metadata=metadata),
    st.builds(Part, raw=st.binary(max_size=9), filename=maybe(ids), media_type=maybe(media_types), metadata=metadata),
    st.builds(Part, url=urls, filename=maybe(ids), media_type=maybe(media_types), metadata=metadata),
    # 0.3 marks data that is no object in the metadata, after which none and an empty one are the same.
    st.builds(Part, data=json_values, metadata=metadata.filter(lambda found: found != {})),
)
# Text and data with a name and a type of their own, which not every dialect can say.
labelled_parts = parts | st.builds(
    Part, text=texts, filename=maybe(ids), media_type=maybe(media_types), metadata=metadata
)
labelled_parts |= st.builds(Part, data=json_values, filename=maybe(ids), media_type=maybe(media_types))
roles = st.sampled_from(Role)
messages = st.builds(
    Message,
    message_id=ids,
    role=roles,
    parts=tuples_of(labelled_parts, 1),
    context_id=maybe(ids),
    task_id=maybe(ids),
    metadata=metadata,
    extensions=tuples_of(urls, 0, 2),
    reference_task_ids=tuples_of(ids, 0, 2),
)
states = st.sampled_from(TaskState)
statuses = st.builds(TaskStatus, state=states, message=maybe(messages), timestamp=maybe(timestamps))
artifacts = st.builds(
    Artifact,
    artifact_id=ids,
    parts=tuples_of(labelled_parts, 1),
    name=maybe(ids),
    description=maybe(ids),
    metadata=metadata,
    extensions=tuples_of(urls, 0, 2),
)
tasks = st.builds(
    Task,
    id=ids,
    status=statuses,
    context_id=ids,
    artifacts=st.lists(artifacts, max_size=2, unique_by=lambda item: item.artifact_id).map(tuple),
    history=tuples_of(messages),
    metadata=metadata,
)
status_updates = st.builds(StatusUpdate, task_id=ids, context_id=ids, status=statuses, metadata=metadata)
artifact_updates = st.builds(
    ArtifactUpdate,
    task_id=ids,
    context_id=ids,
    artifact=artifacts,
    append=st.booleans(),
    last_chunk=st.booleans(),
    metadata=metadata,
)
message_updates = st.builds(MessageUpdate, task_id=ids, context_id=ids, message=messages)
bodies = st.one_of(tasks, messages, status_updates, artifact_updates, message_updates)
events = st.builds(Event, seq=st.integers(1, 1000), body=bodies, at=timestamps)

tenants = maybe(ids)
authentications = st.builds(Authentication, scheme=st.sampled_from(["Bearer", "Basic"]), credentials=maybe(ids))


def push_config(task_id: st.SearchStrategy[Any]) -> st.SearchStrategy[PushConfig]:
    return st.builds(
        PushConfig,
        url=urls,
        id=maybe(ids),
        task_id=task_id,
        token=maybe(ids),
        authentication=maybe(authentications),
        tenant=tenants,
        payload_format=maybe(st.sampled_from(PushFormat)),
        events=tuples_of(st.sampled_from(["completed", "failed", "artifact"]), 0, 2),
    )


push_configs = push_config(ids)
push_pages = st.builds(PushPage, configs=tuples_of(push_configs, 0, 2), next_page_token=st.just("") | ids)
counts = st.integers(0, 50)
configurations = st.builds(
    SendConfiguration,
    accepted_output_modes=tuples_of(media_types, 0, 2),
    task_push_notification_config=maybe(push_config(maybe(ids))),
    history_length=maybe(counts),
    return_immediately=st.booleans(),
)
sends = st.builds(SendRequest, message=messages, configuration=maybe(configurations), metadata=metadata, tenant=tenants)
requests: dict[str, st.SearchStrategy[Any]] = {
    "SEND": sends,
    "STREAM": sends,
    "GET": st.builds(GetRequest, id=ids, history_length=maybe(counts), tenant=tenants),
    "LIST": st.builds(
        TaskFilter,
        context_id=maybe(ids),
        status=maybe(states),
        page_size=maybe(st.integers(1, 100)),
        page_token=maybe(ids),
        history_length=maybe(counts),
        status_timestamp_after=maybe(timestamps),
        include_artifacts=st.booleans(),
        tenant=tenants,
    ),
    "CANCEL": st.builds(CancelRequest, id=ids, metadata=metadata, tenant=tenants),
    "SUBSCRIBE": st.builds(SubscribeRequest, id=ids, tenant=tenants),
    "PUSH_SET": push_configs,
    "PUSH_GET": st.builds(PushGetRequest, task_id=ids, id=ids, tenant=tenants),
    "PUSH_LIST": st.builds(
        PushListRequest, task_id=ids, page_size=maybe(counts), page_token=maybe(ids), tenant=tenants
    ),
    "PUSH_DELETE": st.builds(PushDeleteRequest, task_id=ids, id=ids, url=maybe(urls), tenant=tenants),
    "EXTENDED_CARD": st.builds(CardRequest, tenant=tenants),
}
deletes_by_url = st.builds(PushDeleteRequest, task_id=ids, url=urls, tenant=tenants)
pages = st.builds(
    TaskPage,
    tasks=tuples_of(tasks, 0, 2),
    next_page_token=texts,
    page_size=st.integers(1, 100),
    total_size=counts,
)

scope_maps = st.dictionaries(ids, ids, max_size=2)
_again = {"scopes": scope_maps, "refresh_url": maybe(urls)}
# One flow each, as A2A 1.0 has it.
flows = st.one_of(
    st.builds(
        OAuthFlows,
        authorization_code=st.builds(
            AuthorizationCodeFlow, authorization_url=urls, token_url=urls, pkce_required=st.booleans(), **_again
        ),
    ),
    st.builds(OAuthFlows, client_credentials=st.builds(ClientCredentialsFlow, token_url=urls, **_again)),
    st.builds(
        OAuthFlows, device_code=st.builds(DeviceCodeFlow, device_authorization_url=urls, token_url=urls, **_again)
    ),
    st.builds(OAuthFlows, implicit=st.builds(ImplicitFlow, authorization_url=urls, **_again)),
    st.builds(OAuthFlows, password=st.builds(PasswordFlow, token_url=urls, **_again)),
)
_says = {"description": maybe(ids)}
schemes = st.one_of(
    st.builds(
        SecurityScheme,
        api_key_security_scheme=st.builds(
            ApiKeyScheme, location=st.sampled_from(["header", "query", "cookie"]), name=ids, **_says
        ),
    ),
    st.builds(
        SecurityScheme,
        http_auth_security_scheme=st.builds(
            HttpAuthScheme, scheme=st.sampled_from(["Bearer", "Basic"]), bearer_format=maybe(st.just("JWT")), **_says
        ),
    ),
    st.builds(
        SecurityScheme,
        oauth2_security_scheme=st.builds(OAuth2Scheme, flows=flows, oauth2_metadata_url=maybe(urls), **_says),
    ),
    st.builds(
        SecurityScheme,
        open_id_connect_security_scheme=st.builds(OpenIdConnectScheme, open_id_connect_url=urls, **_says),
    ),
    st.builds(SecurityScheme, mtls_security_scheme=st.builds(MutualTlsScheme, **_says)),
)
requirements = st.builds(
    SecurityRequirement,
    schemes=st.dictionaries(ids, st.builds(Scopes, list=tuples_of(ids, 0, 2)), min_size=1, max_size=2),
)
skills = st.builds(
    AgentSkill,
    id=ids,
    name=ids,
    description=ids,
    tags=tuples_of(ids, 1, 2),
    examples=tuples_of(ids, 0, 2),
    input_modes=tuples_of(media_types, 0, 2),
    output_modes=tuples_of(media_types, 0, 2),
    security_requirements=tuples_of(requirements, 0, 1),
    input_schema=st.none() | st.just({"type": "object"}),
    output_schema=st.none() | st.just({"type": "string"}),
)
interfaces = st.builds(
    AgentInterface,
    url=urls,
    protocol_binding=st.sampled_from(["JSONRPC", "HTTP+JSON", "GRPC"]),
    protocol_version=st.sampled_from(["1.0", "0.3"]),
    tenant=tenants,
)
extensions = st.builds(AgentExtension, uri=urls, description=maybe(ids), required=st.booleans(), params=metadata)
cards = st.builds(
    AgentCard,
    name=ids,
    description=ids,
    version=ids,
    supported_interfaces=tuples_of(interfaces, 1),
    capabilities=st.builds(
        AgentCapabilities,
        streaming=maybe(st.booleans()),
        push_notifications=maybe(st.booleans()),
        extended_agent_card=maybe(st.booleans()),
        extensions=tuples_of(extensions, 0, 1),
    ),
    default_input_modes=tuples_of(media_types, 1, 2),
    default_output_modes=tuples_of(media_types, 1, 2),
    skills=tuples_of(skills, 1, 2),
    provider=maybe(st.builds(AgentProvider, url=urls, organization=ids)),
    documentation_url=maybe(urls),
    icon_url=maybe(urls),
    security_schemes=st.dictionaries(ids, schemes, max_size=2),
    security_requirements=tuples_of(requirements, 0, 1),
    signatures=tuples_of(st.builds(CardSignature, protected=ids, signature=ids, header=metadata), 0, 2),
    profile=maybe(st.builds(CardProfile, human_readable_id=maybe(st.just("acme/echo")), tags=tuples_of(ids, 0, 1))),
)

GET = GetRequest(id="t-1")
"""A request for results whose reading does not depend on what was asked."""
