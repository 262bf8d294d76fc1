"""One module for each noun: the atomic changes, each a Lua script with a typed answer."""
