"""The numbers of the system, from the environment."""

import os

PARTITIONS = int(os.environ.get("TOTAL_PARTITIONS") or os.environ.get("PARTITIONS") or "16")
"""The number of partitions of the queue: so many messages are sent at a time, at most."""

PARTITIONS_PER_POD = int(os.environ.get("PARTITIONS_PER_POD") or "2")
"""Leased pods take so many of them each. PARTITIONS / PARTITIONS_PER_POD pods cover all; more pods stand by."""

SECONDS = float(os.environ.get("WHATSAPP_SECONDS") or "0.02")
"""How long WhatsApp's API takes for a message."""
