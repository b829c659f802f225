"""The A2A wire, without I/O: operations, lifecycle, framing, negotiation and the five dialects.

Everything here is a pure function of its arguments: no asyncio, no sockets, no clock, no logging. `model` and `errors`
are below; `storage`, `engine`, `http` and `client` are above.
"""
