"""The generic dialect: `codec` is its whole, `objects`, `events` and `card` are its parts."""

from accord.protocol.dialects.gen.codec import Gen
