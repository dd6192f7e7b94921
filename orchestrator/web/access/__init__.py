"""Access: users and roles, tokens, the login, and the guard that every request passes."""
