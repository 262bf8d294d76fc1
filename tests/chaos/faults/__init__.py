"""The faults of a campaign: against processes, connections and servers."""
