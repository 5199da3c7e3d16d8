"""Commands of users: which waiting messages they name, what is written of it, and what became of each."""

__all__ = ["commander", "commands", "conditions", "inforce", "outcomes", "selecting"]
