"""The code of the types of steps, one module for each type.

The runner, validation and the dry run call `BEHAVIOR` of a module. `STEP` is its executor if it has one.
"""
