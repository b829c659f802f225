"""What is done in one step of a run: a command, a worktree; agents are children of the run and are not here."""
