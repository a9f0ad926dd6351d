"""How tasks travel to clients: each module opens its engine with `opened(parts)`. None imports another."""
