"""Plug-ins for dsl: one module for each kind."""
