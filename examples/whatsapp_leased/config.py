"""The numbers of the system, as in the environment."""

import os

PARTITIONS = int(os.environ.get("PARTITIONS", "16"))
"""Into how many partitions the queue is split: so many messages are sent at a time, at most."""

PARTITIONS_PER_POD = int(os.environ.get("PARTITIONS_PER_POD", "2"))
"""How many of them a pod takes. All are covered by PARTITIONS / PARTITIONS_PER_POD pods; more of them stand by."""

SECONDS = float(os.environ.get("WHATSAPP_SECONDS", "0.05"))
"""How long WhatsApp's API takes for a message."""
