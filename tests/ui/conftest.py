"""One server and one browser for all tests of the dashboard."""

from dashboard_server import make_admin, make_viewer, open_browser, open_dashboard

__all__ = ["make_admin", "make_viewer", "open_browser", "open_dashboard"]
