"""Views: the JSON shapes of the REST API, also printed by `--json` on the command line.

Each shape is defined once. The OpenAPI document and the dashboard's types follow from it.
"""
