"""Connections to Redis or Valkey: addresses, TLS, topologies, scripts, server requirements."""
