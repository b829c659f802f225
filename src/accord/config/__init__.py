"""Settings: what can be set, and where values come from."""

from accord.config.files import BadSettings
from accord.config.load import Loaded, credentials_of, load, put_together, registry_of, settings_of, store_of
from accord.config.settings import Settings

__all__ = [
    "BadSettings",
    "Loaded",
    "Settings",
    "credentials_of",
    "load",
    "put_together",
    "registry_of",
    "settings_of",
    "store_of",
]
