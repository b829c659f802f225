"""Documents for tests: the files beside this one, and any that the types of a document allow."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct, inspect

from accord.workflows import decoder
from accord.workflows.document import CustomStep, Document, Step
from accord.workflows.step_types import STEP_TYPES

DOCUMENTS = Path(__file__).parent / "documents"

texts = st.text(max_size=12) | st.sampled_from(["on", "yes", "1e3", "0o7", "~", "a: b", "- a", "a\n\n b \n", "<<", "#"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
raw_steps = st.fixed_dictionaries(
    {"type": st.sampled_from(["deterministic", "{{kind}}"])},
    optional={"command": texts, "timeoutMs": st.integers(0, 9) | st.just("{{t}}"), "depends_on": st.lists(texts)},
)


def structs(struct: type[Struct], depth: int = 0) -> st.SearchStrategy[Any]:
    """Any value of a struct: what is required, and any of the others."""
    if struct is CustomStep:
        return st.builds(CustomStep, params=_of(decoder.members_of(CustomStep)["params"].field.type, 0), step=raw_steps)
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in decoder.fields_of(struct):
        if not (struct is Step and field.name == "step" and depth):
            (required if field.required else optional)[field.name] = _of(field.type, depth + (struct is Step))
    return st.fixed_dictionaries(required, optional=optional).map(lambda members: struct(**members))


def _of(kind: inspect.Type, depth: int) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.UnionType(types=kinds):
            return st.one_of(*(_of(one, depth) for one in kinds))
        case inspect.StructType(cls=cls):
            return structs(cls, depth)
        case inspect.VarTupleType(item_type=item, min_length=least):
            return st.lists(_of(item, depth), min_size=least or 0, max_size=2).map(tuple)
        case inspect.DictType(value_type=value):
            return st.dictionaries(texts, _of(value, depth), max_size=2)
        case inspect.Metadata(type=inner):
            is_type = decoder.written_as(kind) == "step type"
            return st.sampled_from(list(STEP_TYPES)) if is_type else _of(inner, depth)
        case inspect.LiteralType(values=words):
            return st.sampled_from(words)
        case inspect.FloatType(ge=ge, gt=gt, le=high):
            return st.floats(ge if ge is not None else gt, high, exclude_min=gt is not None, allow_infinity=False)
        case _:
            low = kind.ge if isinstance(kind, inspect.IntType) else None
            return {
                inspect.IntType: st.integers(min_value=low),
                inspect.StrType: texts,
                inspect.BoolType: st.booleans(),
                inspect.NoneType: st.none(),
                inspect.AnyType: values,
            }[type(kind)]


documents = structs(Document)


def structs_in(kind: inspect.Type) -> tuple[type[Struct], ...]:
    """Return the structs that a value of a type is, or is made of."""
    match kind:
        case inspect.StructType(cls=cls):
            return (cls,)
        case inspect.UnionType(types=kinds):
            return tuple(cls for one in kinds for cls in structs_in(one))
        case inspect.VarTupleType(item_type=inner) | inspect.DictType(value_type=inner):
            return structs_in(inner)
    return ()
