"""Properties that hold what a message of Pulsar has and `inbox` has no column for.

What comes from Pulsar writes them, and a sink in Pulsar takes them back.
"""

ORDERING_KEY = "delayline.ordering-key"
"""The ordering key, a text."""
EVENT_TIME = "delayline.event-time"
"""The time of the event, ms UTC, a whole number."""
