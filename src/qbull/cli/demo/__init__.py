"""`qbull demo`: a sample app, a worker and the dashboard in one command."""
