"""Commands of a store, written once for every engine.

A command knows rows and the rules that must hold in one transaction (fences, sequence numbers, leases), never what a
task means: documents and events come and go as JSON text. Tenant is the first argument of each.
"""
