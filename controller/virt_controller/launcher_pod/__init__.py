"""The launcher Pod of a VMI: `render(vmi, config)`."""

from virt_controller.launcher_pod.contributions import NotPermittedError, UnsupportedSpecError
from virt_controller.launcher_pod.render import first_consumer, render, resources
from virt_controller.launcher_pod.sections import Move, TemplateConfig

__all__ = [
    "Move",
    "NotPermittedError",
    "TemplateConfig",
    "UnsupportedSpecError",
    "first_consumer",
    "render",
    "resources",
]
