"""`make bench`: figures as ratios, measured side by side in one run. Not tests: machines are noisy."""

import sys
from pathlib import Path

#: The rigs of the tests find one another as pytest lets them.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
