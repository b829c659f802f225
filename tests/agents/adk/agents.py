"""Agents for the tests beside this file; they run in ADK's environment."""

import asyncio
from collections.abc import AsyncIterator

from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.auth import AuthConfig, AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.genai import types
from pydantic import BaseModel

from tests.agents.contract import scratch as marks
from tests.agents.contract.peers.adk import SCRATCH, Scripted, agent, ask_person, everything


def called(told: list[types.Part]) -> dict[str, object] | None:
    """Return what the last call gave, if the model is told that."""
    given = told[-1].function_response
    return None if given is None else given.response


def calling(tool: str, /, **args: object) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=tool, args=args))


# --- a person's word --------------------------------------------------------------------------------------------------


async def deleting(told: list[types.Part]) -> AsyncIterator[types.Part]:
    given = called(told)
    yield calling("delete", path="/x") if given is None else types.Part(text=f"{given}")


def delete(path: str) -> str:
    """Delete something."""
    return f"deleted {path}"


async def asking_twice(told: list[types.Part]) -> AsyncIterator[types.Part]:
    answers = [part.function_response.response for part in told if part.function_response is not None]
    if answers:
        yield types.Part(text=" and ".join(str(answer["result"]) for answer in answers))
    else:
        yield types.Part(text="Two things. ")
        yield calling("ask_person", question="From where?")
        yield calling("ask_person", question="To where?")


async def logging_in(told: list[types.Part]) -> AsyncIterator[types.Part]:
    given = called(told)
    yield calling("read_calendar") if given is None else types.Part(text=f"{given}")


def read_calendar(tool_context: ToolContext) -> str | None:
    """Read a calendar, which needs its owner's word."""
    flow = OAuthFlowAuthorizationCode(
        authorizationUrl="https://a.test/auth", tokenUrl="https://a.test/token", scopes={}
    )
    config = AuthConfig(
        auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=flow)),
        raw_auth_credential=AuthCredential(
            auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="id", client_secret="secret")
        ),
    )
    tool_context.request_credential(config)
    return None


# --- at the same time -------------------------------------------------------------------------------------------------

BOTH = asyncio.Barrier(2)


async def together(told: list[types.Part]) -> AsyncIterator[types.Part]:
    """Say everything; who is told so waits for another."""
    if (told[-1].text or "").startswith("together"):
        async with asyncio.timeout(marks.BOUND_SECONDS):
            await BOTH.wait()
    async for part in everything(told):
        yield part


async def waiting(told: list[types.Part]) -> AsyncIterator[types.Part]:
    given = called(told)
    yield calling("wait") if given is None else types.Part(text=f"{given}")


def wait(tool_context: ToolContext) -> str:
    """Block until the test says to go on; in whose thread?"""
    marks.step(SCRATCH, 1)
    marks.held_in_thread(SCRATCH)
    tool_context.state["waited"] = True
    return "waited"


# --- what is said -----------------------------------------------------------------------------------------------------


async def saving(told: list[types.Part]) -> AsyncIterator[types.Part]:
    if called(told) is None:
        yield types.Part(text="I think so.", thought=True)
        yield calling("save", name="map.png")
    else:
        yield types.Part(text="It is saved.")


async def save(name: str, tool_context: ToolContext) -> str:
    """Save a file."""
    await tool_context.save_artifact(name, types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png"))
    return "done"


async def naming(told: list[types.Part]) -> AsyncIterator[types.Part]:
    yield types.Part(text='{"name": ')
    yield types.Part(text='"Rome"}')


async def breaking(told: list[types.Part]) -> AsyncIterator[types.Part]:
    raise RuntimeError("the key is hunter2")
    yield types.Part(text="")


class City(BaseModel):
    name: str


confirmed = agent(deleting, FunctionTool(delete, require_confirmation=True))
twice = agent(asking_twice, LongRunningFunctionTool(ask_person))
private = agent(logging_in, read_calendar)
saved = agent(saving, save)
typed = LlmAgent(name="typed", model=Scripted(model="scripted", says=naming), output_schema=City)
broken = agent(breaking)
remembers = agent(everything)
meets = agent(together)
blocks = agent(waiting, wait)
app = App(name="talker", root_agent=agent(everything))
runner = InMemoryRunner(agent=agent(everything), app_name="own")
