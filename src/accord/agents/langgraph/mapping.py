"""What a caller says as the input of a graph, and the state that a graph ends with as an answer.

It looks at the graph's schema once and knows nothing of runs; the turn that is mapped is `turn`.
"""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

import msgspec
from langchain_core.messages import AIMessage
from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from accord.agents.content import file_parts
from accord.agents.langchain_messages import content_of, file_block, human, said_by
from accord.agents.langgraph import GraphOptions
from accord.agents.naming import function_named
from accord.engine.context import Context, Failed
from accord.model import Part

MESSAGES = "messages"
STRUCTURED = "structured_response"
"""Where LangChain's agents leave the answer that they were told the form of."""

BREAK = "\n\n"
"""Between what a model says in one call and in the next."""


class Output(Struct, frozen=True):
    """What a graph answers: a text, if it gives one, and other parts."""

    text: str | None = None
    parts: tuple[Part, ...] = ()


class GraphMap:
    """How one graph is talked to."""

    def __init__(self, graph: Any, options: GraphOptions) -> None:
        """Look at the graph's schema."""
        self._options = options
        self._schema, self._fields = _input_of(graph)
        self._outputs = graph.output_channels
        self._messages = self._messages_key()
        self._text = self._text_key()
        self._mapper = None if options.input_mapper is None else function_named(options.input_mapper, "input_mapper")
        if options.input_key is not None and self._fields is not None and options.input_key not in self._fields:
            raise ValueError(f"input_key: the graph takes no {options.input_key!r}, but {_listed(self._fields)}")

    # --- in -----------------------------------------------------------------------------------------------------------

    async def input(self, ctx: Context) -> Any:
        """Return what the graph is given for the message that began the turn."""
        if self._mapper is not None:
            mapped = self._mapper(ctx)
            return await mapped if inspect.isawaitable(mapped) else mapped
        if self._fields is None:
            return _value(ctx, ctx.message.parts)
        state = self._state(ctx, self._fields)
        if self._options.files_key is not None:
            state[self._options.files_key] = [file_block(part) for part in ctx.files]
        self._check(state)
        return state

    def _state(self, ctx: Context, fields: Mapping[str, Any]) -> dict[str, Any]:
        key, data = self._options.input_key, ctx.data
        if self._messages is not None and key in (None, self._messages):
            return {self._messages: [human(replace(ctx.message, parts=self._parts(ctx)))]}
        if key is not None:
            return {key: _value(ctx, self._parts(ctx))}
        if isinstance(data, dict):
            if unknown := data.keys() - fields.keys():
                raise Failed(f"This agent takes data with {_listed(fields)}, not {_listed(sorted(unknown))}")
            return dict(data)
        if self._text is not None and ctx.text:
            return {self._text: ctx.text}
        raise Failed(f"This agent takes a data part: an object with {_listed(fields)}")

    def _parts(self, ctx: Context) -> tuple[Part, ...]:
        """Return what is said, without files that have a place of their own."""
        parts = ctx.message.parts
        return parts if self._options.files_key is None else tuple(part for part in parts if part not in ctx.files)

    def _check(self, state: dict[str, Any]) -> None:
        """Tell the caller what does not fit; LangGraph would tell the log, once a node looks at it."""
        if isinstance(self._schema, type) and issubclass(self._schema, BaseModel):
            try:
                self._schema.model_validate(state)
            except ValidationError as error:
                faults = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
                raise Failed(f"This agent cannot take that: {faults}") from error

    # --- out ----------------------------------------------------------------------------------------------------------

    def said(self, values: Any, message_id: str) -> str:
        """Return what a graph's messages say so far in answer to a message."""
        return BREAK.join(text for one in self._answers(values, message_id) if (text := str(one.text)))

    def output(self, values: Any, message_id: str) -> Output:
        """Return what a graph answers to a message with the state that it ends with."""
        if isinstance(values, Mapping) and not isinstance(self._outputs, str):
            values = {key: value for key, value in values.items() if key in self._outputs}
        if self._options.output_key is not None:
            return _output(values.get(self._options.output_key) if isinstance(values, Mapping) else values)
        if not isinstance(values, Mapping):
            return _output(values)
        if self._messages is None or self._messages not in values:
            return _output(next(iter(values.values())) if len(values) == 1 else values)
        answers = self._answers(values, message_id)
        parts = [part for answer in answers for part in said_by(answer)[1]]
        if values.get(STRUCTURED) is not None:
            parts += said_by(values[STRUCTURED])[1]
        return Output(str(answers[-1].text) if answers else None, tuple(parts))

    def _answers(self, values: Any, message_id: str) -> list[AIMessage]:
        """Return what models have said since a message; all that is known is the last, if it is not there."""
        found = values.get(self._messages) if isinstance(values, Mapping) and self._messages else None
        if not isinstance(found, list):
            return []
        at = next((at for at, one in enumerate(found) if getattr(one, "id", None) == message_id), None)
        if at is None:
            return [one for one in found[-1:] if isinstance(one, AIMessage)]
        return [one for one in found[at:] if isinstance(one, AIMessage)]

    # --- the schema ---------------------------------------------------------------------------------------------------

    def _messages_key(self) -> str | None:
        fields = self._fields or {}
        if MESSAGES in fields:
            return MESSAGES
        holding = [name for name, hint in fields.items() if "langchain_core.messages" in repr(hint)]
        return holding[0] if len(holding) == 1 else None

    def _text_key(self) -> str | None:
        texts = [name for name, hint in (self._fields or {}).items() if _is_text(hint)]
        return texts[0] if len(texts) == 1 else None


def _input_of(graph: Any) -> tuple[Any, dict[str, Any] | None]:
    """Return a graph's input schema and its fields; a graph of the functional interface takes a single value."""
    builder = getattr(graph, "builder", None)
    if builder is None:
        keys = graph.input_channels
        return None, None if isinstance(keys, str) else dict.fromkeys(keys)
    schema = builder.input_schema
    try:
        hints = get_type_hints(schema, include_extras=True)
    except (NameError, TypeError):  # written in a way that only its own module can look up
        hints = dict.fromkeys(builder.channels)
    return schema, hints or None


def _is_text(hint: Any) -> bool:
    inner = getattr(hint, "__origin__", hint) if hasattr(hint, "__metadata__") else hint  # Annotated[str, ...]
    return inner is str or inner == (str | None)


def _value(ctx: Context, parts: tuple[Part, ...]) -> Any:
    """Return what was said as one value: a text, else data; with files, the blocks of a message."""
    if file_parts(parts):
        return content_of(parts)
    if ctx.text or not any(part.data is not msgspec.UNSET for part in parts):
        return ctx.text
    return ctx.data


def _output(value: Any) -> Output:
    text, parts = said_by(value)
    return Output(text, tuple(parts))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
