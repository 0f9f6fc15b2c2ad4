"""What holds for any input. Those that need the gateway have it whole, in memory, in virtual time."""

from hypothesis import HealthCheck, settings

settings.register_profile("toolgate", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("toolgate")
