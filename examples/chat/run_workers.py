"""One pod: takes up to PARTITIONS_PER_POD free partitions, for itself alone, and gives them back when it stops."""

import os
import sys

import config

ARGUMENTS = ["worker", "whatsapp:app", "--sharing", "leased"]

if __name__ == "__main__":
    per_pod = ["--partitions-per-pod", str(config.PARTITIONS_PER_POD)]
    os.execv(sys.executable, [sys.executable, "-m", "qbull.cli.main", *ARGUMENTS, *per_pod])
