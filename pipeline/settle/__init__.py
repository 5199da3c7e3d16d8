"""Stage 4: what consumers say of deliveries is settled, or put back, or given up. Only with acknowledgement."""

__all__ = ["core", "moves", "plan", "sources", "stage", "undone"]
