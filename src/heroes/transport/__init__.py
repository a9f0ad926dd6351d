"""How work reaches clients: messages as bytes (`wire`), and the `engines` with their `workers`."""
