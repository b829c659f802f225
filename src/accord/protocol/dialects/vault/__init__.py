"""The dialect of AgentVault's profile 0.2: `codec` is its whole, `objects`, `events` and `card` are its parts."""

from accord.protocol.dialects.vault.codec import Vault
