"""The schemes, one per file. None imports another; they share the cut, the overlay and the pacing arithmetic."""
