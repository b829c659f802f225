"""The code of the types of steps, one module for each type.

`BEHAVIOR` in a module is what the runner, validation and the dry run call, `STEP` its executor if it has one.
"""
