"""OpenAPI's own checker of descriptions."""

from typing import Any


def mistakes(document: dict[str, Any]) -> list[str]:
    """What is wrong with a description of OpenAPI 3.1."""
    # Importing it takes seconds, as it makes the parsers of all formats; every process of a test run would pay that.
    from openapi_spec_validator import OpenAPIV31SpecValidator

    return [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()]
