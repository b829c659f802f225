"""Remote tasks: tasks of this server that agents on other servers execute."""
