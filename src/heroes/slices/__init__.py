"""Parts of a model: cut out (`cuts`), laid back (`overlays`), composed, chosen by `blocks`, packed."""
