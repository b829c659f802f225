"""Settings: what can be set, and where values come from."""

from accord.config.load import BadSettings, Loaded, credentials_of, load, registry_of, settings_of, store_of
from accord.config.settings import Settings

__all__ = ["BadSettings", "Loaded", "Settings", "credentials_of", "load", "registry_of", "settings_of", "store_of"]
