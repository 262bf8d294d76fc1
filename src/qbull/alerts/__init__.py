"""Alerts: tell people what is wrong. `duty` looks and sends, `message` says it in words, `post` is the way out."""
