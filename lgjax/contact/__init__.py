"""Contacts of trees."""
