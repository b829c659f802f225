"""How commands end: the exit code, the error and what to do about it."""

from accord.cli.failures import Exit, explain_failure
from accord.errors import AuthenticationFailed, PermissionDenied


def test_forbidden_callers_are_not_asked_for_credentials() -> None:
    unknown, known = (
        explain_failure(AuthenticationFailed()),
        explain_failure(PermissionDenied("Your roles do not include this")),
    )
    assert unknown is not None
    assert known is not None
    assert unknown.exit == known.exit == Exit.UNAUTHENTICATED
    assert "--api-key" in (unknown.hint or "")
    assert "--api-key" not in (known.hint or "")
    assert "role" in (known.hint or "")
