"""Prepares the documentation as the source of a site, and checks the site: `scripts/site` uses it."""
