"""The enqueue path: everything that creates jobs goes through here."""
