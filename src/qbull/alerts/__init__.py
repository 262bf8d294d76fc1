"""Alerts: `detect` finds problems, `message` words them, `deliver` sends them, `alerting` runs the loop."""
