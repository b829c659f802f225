"""Where agents are published, searched for, looked after and called by their names: framework-free.

`cards` says what can be published, `registry` who may do what, `trust` whose signatures count, `checks` who is there,
`names` what a name is, `remote` a registry elsewhere, `developers` whose keys are whose. HTTP is above, in `console`;
tables are below, in `storage.commands`.
"""
