"""Whether this machine's clock agrees with others': the database's, and those of servers that were asked anyway.

Nobody is asked here; `stores` and `reach` note what they are told. Deadlines go by the database's clock, tokens and
signatures by everybody's own, so a clock that is off shows as callers who are refused.
"""

from accord.app.doctor.findings import Finding, Patient, failed, ok, warning

OFF_SECONDS = 5.0
"""More than a request takes, and than a `Date` that has no fractions leaves open."""

WRONG_SECONDS = 30.0
"""What tokens are allowed to be off by, unless the settings say otherwise."""

REMEDY = "let something keep the time (chrony, systemd-timesyncd), here or there"


def compared(patient: Patient) -> list[Finding]:
    """Return how the clocks are that somebody has told us of; if nobody has, there is nothing to say."""
    far = {name: skew for name, skew in patient.dates.items() if abs(skew) > OFF_SECONDS}
    if not far:
        return [ok("clock", f"agrees with {', '.join(sorted(patient.dates))}")] if patient.dates else []
    return [_off(name, skew) for name, skew in sorted(far.items())]


def _off(name: str, skew: float) -> Finding:
    detail = f"{name} is {abs(skew):.0f} seconds {'ahead of' if skew > 0 else 'behind'} this machine"
    return failed("clock", detail, REMEDY) if abs(skew) > WRONG_SECONDS else warning("clock", detail, REMEDY)
