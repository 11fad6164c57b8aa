"""Makes `framework` and `contract` importable from everywhere in the tests.

Behind everything else on the path, not before it: a folder of tests must not hide a library of the same name.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
