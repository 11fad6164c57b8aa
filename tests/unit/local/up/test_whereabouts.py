"""An instance is found by its name, wherever it was started."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from virt_local import places
from virt_local.up import whereabouts
from virt_local.up.instance import Instance, SettingsError, make_instance
from virt_local.up.state import save_settings

USUAL = Path("/var/lib/virtpod-lab")


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(whereabouts, "LINKS", tmp_path / "links")
    return tmp_path / "links"


@pytest.fixture
def elsewhere(tmp_path: Path, links: Path) -> Instance:
    """It was started with --data-dir."""
    made = make_instance("lab", str(tmp_path / "data"), port=7000, nodes=2)
    save_settings(made, components=True)
    whereabouts.remember(made, links)
    return made


def test_the_name_is_enough(elsewhere: Instance, links: Path) -> None:
    assert places.existing_instance("lab", None) == elsewhere
    assert places.place_of("lab", None) == str(elsewhere.data_dir), "the next up goes there too"
    assert links.stat().st_mode & 0o777 == 0o755, "status is for everybody"


def test_a_directory_that_is_given_counts(elsewhere: Instance, tmp_path: Path) -> None:
    assert places.existing_instance(None, str(elsewhere.data_dir)) == elsewhere
    assert places.place_of("lab", str(tmp_path / "new")) == str(tmp_path / "new")


def test_a_name_and_a_directory_that_contradict_each_other(elsewhere: Instance) -> None:
    """`down` with a wrong name must not end somebody else's guests."""
    with pytest.raises(SettingsError, match=f"{elsewhere.data_dir} is the place of instance lab, not of other"):
        places.existing_instance("other", str(elsewhere.data_dir))


def test_others_are_in_the_usual_place(elsewhere: Instance, links: Path) -> None:
    assert whereabouts.find("other", links) == Path("/var/lib/virtpod-other")
    assert whereabouts.find("vp", links) == Path("/var/lib/virtpod")


def test_a_link_to_what_is_gone_or_was_made_anew_under_another_name_is_not_believed(
    elsewhere: Instance, links: Path
) -> None:
    save_settings(make_instance("newer", str(elsewhere.data_dir)), components=True)
    assert whereabouts.find("lab", links) == USUAL
    (elsewhere.run_dir / "settings.json").unlink()
    assert whereabouts.find("lab", links) == USUAL


def test_an_instance_that_moves_is_found_where_it_is_now(elsewhere: Instance, links: Path, tmp_path: Path) -> None:
    moved = make_instance("lab", str(tmp_path / "second"))
    save_settings(moved, components=True)
    whereabouts.remember(moved, links)
    assert whereabouts.find("lab", links) == moved.data_dir
    whereabouts.forget(elsewhere, links)
    assert whereabouts.find("lab", links) == moved.data_dir, "the link is not the old place's any more"
    whereabouts.remember(make_instance("lab"), links)
    assert whereabouts.find("lab", links) == USUAL


def test_nothing_is_left_of_an_instance_that_is_purged(elsewhere: Instance, links: Path) -> None:
    whereabouts.forget(elsewhere, links)
    assert not links.exists()
    whereabouts.forget(elsewhere, links)


def test_instances_come_and_go_at_the_same_time(links: Path, tmp_path: Path) -> None:
    """The directory of links goes with the last one, while the next one comes."""

    def come_and_go(name: str) -> None:
        made = make_instance(name, str(tmp_path / name))
        save_settings(made, components=True)
        for _ in range(100):
            whereabouts.remember(made, links)
            assert whereabouts.find(name, links) == made.data_dir
            whereabouts.forget(made, links)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, ["a", "b", "c", "d"]))
    assert not links.exists()


@pytest.mark.parametrize("name", ["../etc", "", "A", "toolongname"])
def test_a_name_is_never_a_path(name: str, links: Path) -> None:
    with pytest.raises(SettingsError, match="instance name"):
        whereabouts.find(name, links)
