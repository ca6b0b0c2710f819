"""Questions that wait for a person who looks at the console, or at the list of them."""


class PendingApprovals:
    """Questions of running turns, each with a deadline after which the answer is no."""
