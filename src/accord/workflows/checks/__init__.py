"""Everything about a document that can be known without running it: what is wrong, what is risky, what is remarkable.

Each check is a function over a `Subject`, in a module by what it is about; none changes anything or asks anybody
elsewhere. The shape of a file is right by then: that is `reading`'s.
"""

from accord.workflows.checks.every import CHECKS, check, check_source, validate

__all__ = ["CHECKS", "check", "check_source", "validate"]
