"""The client's part of a round: train (`training`), measure (`probing`), and test (`evaluation`)."""
