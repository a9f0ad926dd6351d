"""How work reaches clients: messages as bytes (`wire`), `engines`, their `workers`, and how they open."""
