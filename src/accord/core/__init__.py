"""What A2A means, free of frameworks: the one interface, the service behind it and the agents it runs.

`protocol`, `model` and `errors` are below; bindings, the client and the agents are above.
"""
