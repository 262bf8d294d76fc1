"""Views: the JSON shapes of the REST API, and of the command line where it prints the same things.

Each shape is defined once. The OpenAPI document and the dashboard's types follow from it.
"""
