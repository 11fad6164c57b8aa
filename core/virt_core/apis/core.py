"""The core group in one place, for programs that use most of it; a program that counts imports takes the modules."""

from virt_core.apis.config import *  # noqa: F403
from virt_core.apis.nodes import *  # noqa: F403
from virt_core.apis.podparts import *  # noqa: F403
from virt_core.apis.pods import *  # noqa: F403
from virt_core.apis.podvolumes import *  # noqa: F403
from virt_core.apis.scheduling import *  # noqa: F403
from virt_core.apis.services import *  # noqa: F403
from virt_core.apis.storage import *  # noqa: F403
