"""The launcher Pod of a VMI: `render(vmi, config)`."""

from virt_controller.launcher_pod.contributions import UnsupportedSpecError
from virt_controller.launcher_pod.render import first_consumer, render
from virt_controller.launcher_pod.sections import Move, TemplateConfig

__all__ = ["Move", "TemplateConfig", "UnsupportedSpecError", "first_consumer", "render"]
