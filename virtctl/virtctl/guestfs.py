"""`virtctl guestfs`: not built. It says why, and what does the same."""

from __future__ import annotations

import click

from virtctl.cli import command as declare
from virtctl.options import Settings


@declare("guestfs", context_settings={"ignore_unknown_options": True})
@click.argument("claim", metavar="CLAIM")
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="…")
def command(settings: Settings, *, claim: str, rest: tuple[str, ...]) -> None:  # noqa: ARG001
    """Not built: look into the disk of a claim with the tools of libguestfs.

    They need an image with a kernel and an appliance of their own, and Virtpod brings none. Fetch the disk instead, and
    open it where libguestfs is installed:

    \b
      virtctl vmexport download look --pvc CLAIM --format raw --output disk.img
      guestfish --ro --add disk.img --inspector
    """
    raise click.ClickException(
        "guestfs is not built, for Virtpod has no image with libguestfs; stop the VM, fetch its disk by "
        f"`virtctl vmexport download look --pvc {claim} --format raw --output disk.img` and open that with guestfish"
    )
