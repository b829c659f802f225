"""The ways to authenticate, one file each, behind `core.access`.

`settings` says how each can be set up, `build` makes what was set up, `card` says on the card what is enforced. None of
them reads files or variables, or talks to the network by itself: what is in `ports` is all they get.
"""
