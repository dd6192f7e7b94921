"""The pages. Each module serves one page and its actions, and renders a template of the same name."""
