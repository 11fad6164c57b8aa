"""What of the API is built: one table that drives feature gates, admission, subresources, conditions and the docs.

Nothing that is not built answers success: who asks for it is refused in one sentence, at the first door. When a feature
gets built, its row changes its state, and everything that hangs on it follows.
"""
