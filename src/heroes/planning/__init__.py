"""What a round costs each client (`loads`), and how wide and how long it trains (`pacing`, `schedule`)."""
