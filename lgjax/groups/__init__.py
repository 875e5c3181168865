"""Lie groups as plain functions over arrays, gathered in records, and the spaces they act on."""
