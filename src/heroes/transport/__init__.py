"""How work reaches clients: messages as bytes (`wire`), the `engines` with their `workers`, and how they open
(`opening`).
"""
