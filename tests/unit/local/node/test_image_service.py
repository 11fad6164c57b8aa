"""Which images are pulled when, and what a container says while it waits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from unit.local.node.layouts import LayoutBuilder

from virt_core.runtime.clock import FakeClock
from virt_local.node.images.host import HOST_IMAGE
from virt_local.node.images.layout import Image, ImageError
from virt_local.node.images.root import Root
from virt_local.node.images.service import ImageNotReady, ImageService
from virt_local.node.images.store import PULLED, ImageStore

NAME = "x.internal/i:v1"


class Later(Executor):
    """Runs what is submitted when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self) -> None:
        while self.tasks:
            self.tasks.pop(0)()


class Host:
    def root(self) -> Root:
        return Root(HOST_IMAGE, "id", Path("/"))


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.store = ImageStore(root / "store")
        self.pulls = 0
        self.woken = 0
        self.online = True
        self.executor = Later()
        self.service = ImageService(
            self.store, Host(), HOST_IMAGE, puller=self.pull, executor=self.executor, clock=self.clock
        )

    def pull(self, store: ImageStore, name: str) -> Image:
        self.pulls += 1
        if not self.online:
            raise ImageError(f"cannot pull {name}: no route")
        return store.import_layout(self.layout(), name, origin=PULLED)

    def layout(self) -> Path:
        return LayoutBuilder(self.root / f"l{self.pulls}{self.woken}").layer([]).write()

    def ask(self, policy: str = "", uid: str = "p1") -> Root:
        try:
            return self.service.root(NAME, policy, uid, self.wake)
        finally:
            self.executor.run()

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def refused(world: World, policy: str = "") -> ImageNotReady:
    with pytest.raises(ImageNotReady) as caught:
        world.ask(policy)
    return caught.value


def test_an_absent_image_is_pulled_once_and_then_there(world: World) -> None:
    waiting = refused(world)
    assert (waiting.reason, waiting.message) == ("ContainerCreating", f"pulling image {NAME!r}")
    assert world.woken == 1
    assert world.ask().image == NAME
    assert world.pulls == 1


def test_a_failed_pull_backs_off_and_doubles(world: World) -> None:
    world.online = False
    refused(world)
    waiting = refused(world)
    assert waiting.reason == "ImagePullBackOff"
    assert "no route" in waiting.message
    assert waiting.until == world.clock.now() + timedelta(seconds=10)
    assert world.pulls == 1
    world.clock.step(10)
    refused(world)
    assert world.pulls == 2
    assert refused(world).until == world.clock.now() + timedelta(seconds=20)


def test_always_pulls_once_for_each_pod(world: World) -> None:
    refused(world, "Always")
    world.ask("Always")
    world.ask("Always")
    assert world.pulls == 1
    with pytest.raises(ImageNotReady):
        world.ask("Always", uid="p2")
    assert world.pulls == 2


def test_what_was_imported_is_never_pulled(world: World) -> None:
    world.store.import_layout(world.layout(), NAME)
    world.ask("Always")
    assert world.pulls == 0


def test_never_says_how_to_bring_it(world: World) -> None:
    waiting = refused(world, "Never")
    assert waiting.reason == "ErrImageNeverPull"
    assert f"virt-local image import LAYOUT_DIR --name {NAME}" in waiting.message


def test_the_host_image_is_always_there(world: World) -> None:
    assert world.service.root(HOST_IMAGE, "Always", "p", world.wake).image == HOST_IMAGE


def test_a_name_that_is_none(world: World) -> None:
    with pytest.raises(ImageNotReady) as caught:
        world.service.root("Not A Name", "", "p", world.wake)
    assert caught.value.reason == "InvalidImageName"
