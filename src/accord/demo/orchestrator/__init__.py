"""A small orchestrator that acknowledges at once and reports by webhook: the other side of `accord serve --remote`.

It is an A2A 0.3 agent without any of Accord's code, so that the way from acknowledgement to webhook can be tried on one
machine: `python -m accord.demo.orchestrator`.
"""
