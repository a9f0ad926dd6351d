"""How tasks travel to clients. None imports another."""
