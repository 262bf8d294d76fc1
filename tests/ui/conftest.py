"""One stage and one browser for all tests of the dashboard."""

from stage import make_admin, make_viewer, open_browser, set_stage

__all__ = ["make_admin", "make_viewer", "open_browser", "set_stage"]
