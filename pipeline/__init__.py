"""The Spark side of delayline: sources, the three stages, and what keeps them exactly once."""
