"""The machine moves: out of this launcher (`source.py`), or into it (`arrival.py`)."""
