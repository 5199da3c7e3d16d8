"""The pipeline of delayline, in rooms: `docs/architecture.md` has the picture."""
