"""The application for its processes: `qbull worker ceres:app`, `qbull serve ceres:app`. Its tasks are in the other modules."""

import emails
import files
import messages
import upkeep
from queues import app

__all__ = ["app", "emails", "files", "messages", "upkeep"]
