"""Which operations bindings treat otherwise than the rest; what does them is `core.interface`."""

from accord.protocol.operations import Operation

LONG = frozenset({Operation.SEND})
"""What may take as long as an agent works, so that it matters whether its caller is still there."""
