"""`accord hash-password`: a password as settings keep it."""

import typer


def hash_password() -> None:
    """Print the hash of a password that is typed in, or piped in as one line."""
    import sys

    from accord.auth import passwords

    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise typer.BadParameter("The password is empty")
    typer.echo(passwords.hash_password(password))
