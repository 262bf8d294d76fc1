"""Bridges to web frameworks. Only the module of a framework imports that framework."""
