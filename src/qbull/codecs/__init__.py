"""How payloads and results are stored: compressed, signed, encrypted, or offloaded elsewhere."""
