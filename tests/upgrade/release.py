"""`accord` as a release that knows other migrations: those in a folder.

    python -m tests.upgrade.release FOLDER serve ...

Everything else is the code as it is here: what is tried is that nodes with two schemas share one database. The release
before is one that lacks the last migration, a release to come has one more.
"""

import sys
from pathlib import Path

from accord.cli import main
from accord.storage import schema

if __name__ == "__main__":
    schema.MIGRATIONS = Path(sys.argv.pop(1))
    main()
