"""The launcher Pod of a VMI: `render(vmi, config)`."""

from virt_controller.launcher_pod.parts import UnsupportedSpecError
from virt_controller.launcher_pod.render import render
from virt_controller.launcher_pod.sections import TemplateConfig

__all__ = ["TemplateConfig", "UnsupportedSpecError", "render"]
