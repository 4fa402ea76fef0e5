"""Settings of the whole suite: property tests draw the same examples everywhere, and no test depends on how fast a machine is."""

from hypothesis import settings

settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")
