"""What may be chosen: settings, sizes, profiles, the Spark session, names of stages, errors, paths, and time."""

__all__ = [
    "deltaspark",
    "errors",
    "jvm",
    "options",
    "paths",
    "printed",
    "profiles",
    "routes",
    "s3",
    "servers",
    "session",
    "settings",
    "sizing",
    "sources",
    "spelling",
    "stages",
    "threads",
    "timeline",
    "version",
    "wallclock",
]
