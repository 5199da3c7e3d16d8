"""Moving over: what waits in a broker for its time is taken into `inbox`, each message once."""

__all__ = ["places", "pulsar"]
