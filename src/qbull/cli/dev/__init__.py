"""`qbull dev`: server, worker, API and dashboard of an app, reloaded when its code changes."""
