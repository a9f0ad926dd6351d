"""The strategies, one per file, found by `registry`. None imports another; all are built on `base`."""
