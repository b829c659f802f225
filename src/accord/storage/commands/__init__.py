"""Commands of a store, written once for all engines.

A command handles rows and the rules of one transaction (fences, sequence numbers, leases), never the meaning of a
task. Documents and events are JSON text. The tenant is the first argument of each command.
"""
