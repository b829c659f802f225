"""Map messages to graph input, states to answers, interrupts to questions.

It reads the graph's schema once and does not depend on executions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec
from langchain_core.messages import AIMessage
from langgraph.types import Interrupt
from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from accord.agents.langchain.runnable import file_block, human_message, json_value, message_content, text_and_parts
from accord.agents.langgraph import GraphOptions
from accord.agents.loader import call_function, import_function
from accord.agents.messages import file_parts
from accord.api import APPROVAL, Context, Failed, IncomingMessage
from accord.model import Part
from accord.model.metadata_keys import SCHEMA

MESSAGES = "messages"
STRUCTURED = "structured_response"
"""State key of structured answers of LangChain's agents."""

BREAK = "\n\n"
"""Separator between the texts of two model calls."""


class GraphOutput(Struct, frozen=True):
    """The output of a graph: a text, if it has one, and other parts."""

    text: str | None = None
    parts: tuple[Part, ...] = ()


class GraphMap:
    """The mapping of one graph's input and output."""

    def __init__(self, graph: Any, options: GraphOptions) -> None:
        self._options = options
        self._schema, self._fields = _input_of(graph)
        self._outputs = graph.output_channels
        self._messages = self._messages_key()
        self._text = self._text_key()
        self._mapper = None if options.input_mapper is None else import_function(options.input_mapper, "input_mapper")
        if options.input_key is not None and self._fields is not None and options.input_key not in self._fields:
            raise ValueError(f"input_key: the graph takes no {options.input_key!r}, but {_join_names(self._fields)}")

    # --- in -----------------------------------------------------------------------------------------------------------

    async def input(self, ctx: Context) -> Any:
        """Return the graph's input for the message that started the turn."""
        if self._mapper is not None:
            return await call_function(self._mapper, ctx)
        if self._fields is None:
            return _input_value(ctx, ctx.message.parts)
        state = self._state(ctx, self._fields)
        if self._options.files_key is not None:
            state[self._options.files_key] = [file_block(part) for part in ctx.files]
        self._check(state)
        return state

    def _state(self, ctx: Context, fields: Mapping[str, Any]) -> dict[str, Any]:
        key, data = self._options.input_key, ctx.data
        if self._messages is not None and key in (None, self._messages):
            return {self._messages: [human_message(replace(ctx.message, parts=self._parts(ctx)))]}
        if key is not None:
            return {key: _input_value(ctx, self._parts(ctx))}
        if isinstance(data, dict):
            if unknown := data.keys() - fields.keys():
                raise Failed(f"This agent takes data with {_join_names(fields)}, not {_join_names(sorted(unknown))}")
            return dict(data)
        if self._text is not None and ctx.text:
            return {self._text: ctx.text}
        raise Failed(f"This agent takes a data part: an object with {_join_names(fields)}")

    def _parts(self, ctx: Context) -> tuple[Part, ...]:
        """Return the parts of the message, without files that have a separate key."""
        parts = ctx.message.parts
        return parts if self._options.files_key is None else tuple(part for part in parts if part not in ctx.files)

    def _check(self, state: dict[str, Any]) -> None:
        """Raise Failed for input that does not fit the schema. LangGraph would only log it once a node reads it."""
        if isinstance(self._schema, type) and issubclass(self._schema, BaseModel):
            try:
                self._schema.model_validate(state)
            except ValidationError as error:
                faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
                raise Failed(f"This agent cannot take that: {faults}") from error

    # --- out ----------------------------------------------------------------------------------------------------------

    def text_so_far(self, values: Any, message_id: str) -> str:
        """Return the text of a graph's answers to a message so far."""
        return BREAK.join(text for answer in self._answers(values, message_id) if (text := str(answer.text)))

    def output(self, values: Any, message_id: str) -> GraphOutput:
        """Return a graph's answer to a message from its final state."""
        if isinstance(values, Mapping) and not isinstance(self._outputs, str):
            values = {key: value for key, value in values.items() if key in self._outputs}
        if self._options.output_key is not None:
            return _output(values.get(self._options.output_key) if isinstance(values, Mapping) else values)
        if not isinstance(values, Mapping):
            return _output(values)
        if self._messages is None or self._messages not in values:
            return _output(next(iter(values.values())) if len(values) == 1 else values)
        answers = self._answers(values, message_id)
        parts = [part for answer in answers for part in text_and_parts(answer)[1]]
        if values.get(STRUCTURED) is not None:
            parts += text_and_parts(values[STRUCTURED])[1]
        return GraphOutput(str(answers[-1].text) if answers else None, tuple(parts))

    def _answers(self, values: Any, message_id: str) -> list[AIMessage]:
        """Return the models' messages since a message. If that message is missing, return only the last one."""
        messages = values.get(self._messages) if isinstance(values, Mapping) and self._messages else None
        if not isinstance(messages, list):
            return []
        at = next((at for at, message in enumerate(messages) if getattr(message, "id", None) == message_id), None)
        if at is None:
            return [message for message in messages[-1:] if isinstance(message, AIMessage)]
        return [message for message in messages[at:] if isinstance(message, AIMessage)]

    # --- the schema ---------------------------------------------------------------------------------------------------

    def _messages_key(self) -> str | None:
        fields = self._fields or {}
        if MESSAGES in fields:
            return MESSAGES
        message_fields = [name for name, hint in fields.items() if "langchain_core.messages" in repr(hint)]
        return message_fields[0] if len(message_fields) == 1 else None

    def _text_key(self) -> str | None:
        texts = [name for name, hint in (self._fields or {}).items() if _is_text(hint)]
        return texts[0] if len(texts) == 1 else None


def _input_of(graph: Any) -> tuple[Any, dict[str, Any] | None]:
    """Return a graph's input schema and its fields. A graph of the functional interface takes a single value."""
    builder = getattr(graph, "builder", None)
    if builder is None:
        keys = graph.input_channels
        return None, None if isinstance(keys, str) else dict.fromkeys(keys)
    schema = builder.input_schema
    try:
        hints = get_type_hints(schema, include_extras=True)
    except (NameError, TypeError):  # an annotation that only its own module can resolve
        hints = dict.fromkeys(builder.channels)
    return schema, hints or None


def _is_text(hint: Any) -> bool:
    inner = getattr(hint, "__origin__", hint) if hasattr(hint, "__metadata__") else hint  # Annotated[str, ...]
    return inner is str or inner == (str | None)


def _input_value(ctx: Context, parts: tuple[Part, ...]) -> Any:
    """Return the message as one value: a text, data, or content blocks if there are files."""
    if file_parts(parts):
        return message_content(parts)
    if ctx.text or not any(part.data is not msgspec.UNSET for part in parts):
        return ctx.text
    return ctx.data


def _output(value: Any) -> GraphOutput:
    text, parts = text_and_parts(value)
    return GraphOutput(text, tuple(parts))


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names)


QUESTION_KEYS = ("question", "message", "prompt", "text", "description")
"""Keys that graphs use for the text of a question."""

DEFAULT_QUESTION = "The agent needs an answer to continue."

JSON = "application/json"


def question_parts(interrupts: Sequence[Interrupt]) -> list[Part]:
    """Return the question of an interrupt with its data, or of several interrupts with all their ids."""
    if len(interrupts) == 1:
        value = interrupts[0].value
        if isinstance(value, str):
            return [Part(text=str(value))]
        return [Part(text=_question_text(value) or DEFAULT_QUESTION), Part(data=json_value(value), media_type=JSON)]
    lines = [
        f"{number}. {_question_text(interrupt.value) or DEFAULT_QUESTION}"
        for number, interrupt in enumerate(interrupts, 1)
    ]
    return [Part(text="\n".join(lines)), Part(data={"interrupts": list_interrupts(interrupts)}, media_type=JSON)]


def list_interrupts(interrupts: Sequence[Interrupt]) -> list[dict[str, Any]]:
    """Return interrupts with their ids and, if the graph declares one, the schema of the answer."""
    return [
        {"id": interrupt.id, "value": json_value(interrupt.value)}
        | ({"schema": json_value(schema)} if (schema := _schema(interrupt)) else {})
        for interrupt in interrupts
    ]


def question_metadata(interrupts: Sequence[Interrupt]) -> dict[str, Any]:
    """Return the question's metadata: all interrupts, and whether it asks for approval or states a schema."""
    metadata: dict[str, Any] = {"interrupts": list_interrupts(interrupts)}
    if len(interrupts) == 1:
        value, schema = interrupts[0].value, _schema(interrupts[0])
        if isinstance(value, dict) and value.get(APPROVAL) is True:
            metadata[APPROVAL] = True
        if schema is not None:
            metadata[SCHEMA] = json_value(schema)
    return metadata


def resume_values(interrupts: Sequence[Interrupt], reply: IncomingMessage) -> dict[str, Any]:
    """Return the graph's resume values by interrupt id.

    Data whose keys are all interrupt ids answers those interrupts. Any other answer is for the first one.
    """
    ids = {interrupt.id for interrupt in interrupts}
    data = reply.data
    if isinstance(data, dict) and data and data.keys() <= ids:
        return data
    return {interrupts[0].id: _answer_value(reply)}


def _answer_value(reply: IncomingMessage) -> Any:
    if any(part.data is not msgspec.UNSET for part in reply.parts):
        return reply.data
    return message_content(reply.parts) if reply.files else reply.text


def _question_text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, dict):
        return ""
    return next((value[key] for key in QUESTION_KEYS if isinstance(value.get(key), str)), "")


def _schema(interrupt: Interrupt) -> dict[str, Any] | None:
    schema = getattr(interrupt, "response_schema", None)
    return schema if isinstance(schema, dict) else None
