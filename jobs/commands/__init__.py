"""What the commands of `delayline` do. `jobs.cli` parses, these act and print."""
