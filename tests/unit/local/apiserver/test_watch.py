"""The store's changes as watchers see them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from virt_local.apiserver.storage import Change, Expired, Mismatch, Store
from virt_local.apiserver.storage.store import ABSENT
from virt_local.apiserver.verbs.watch import make_filter

from .conftest import Client, config_map

MAPS = "/api/v1/namespaces/default/configmaps"


def _obj(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "labels": labels}}


def _everything(change: Change) -> Change | None:
    return change


def _with_store(path: Path, scenario: Any, **options: Any) -> None:
    async def session() -> None:
        store = Store(path / "s.db", **options)
        await store.start()
        try:
            async with asyncio.timeout(20):
                await scenario(store)
        finally:
            await store.close()

    asyncio.run(session())


def test_changes_come_in_order_and_without_a_gap(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        watcher = store.watch("things", _everything, 0)
        await asyncio.gather(*(store.put("things", _obj(f"o{i}")) for i in range(200)))
        revisions: list[int] = []
        while len(revisions) < 200:
            revisions += [change.record.revision for change in await watcher.next_batch(5)]
        assert revisions == list(range(1, 201))
        late = store.watch("things", _everything, 150)
        assert [change.record.revision for change in await late.next_batch(1)] == list(range(151, 201))

    _with_store(tmp_path, scenario)


def test_nobody_sees_a_write_before_the_disk_has_it(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        task = asyncio.create_task(store.put("things", _obj("a")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert store.get("things", "n", "a") is None
        record = await task
        assert store.get("things", "n", "a") is record

    _with_store(tmp_path, scenario)


def test_two_writers_of_one_revision(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        first = await store.put("things", _obj("a"), expect=ABSENT)
        writes = [store.put("things", _obj("a"), expect=first.revision) for _ in range(5)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert sum(isinstance(result, Mismatch) for result in results) == 4

    _with_store(tmp_path, scenario)


def test_a_cancelled_writer_does_not_free_the_key_early(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        first = await store.put("things", _obj("a"))
        task = asyncio.create_task(store.put("things", _obj("a", v="1"), expect=first.revision))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(Mismatch):
            await store.put("things", _obj("a", v="2"), expect=first.revision)
        kept = store.get("things", "n", "a")
        assert kept is not None
        assert kept.labels == {"v": "1"}

    _with_store(tmp_path, scenario)


def test_history_is_bounded_and_says_so(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        for i in range(10):
            await store.put("things", _obj(f"o{i}"))
        with pytest.raises(Expired):
            store.watch("things", _everything, 3)
        assert store.watch("things", _everything, 5) is not None

    _with_store(tmp_path, scenario, history=5)


def test_old_revisions_expire_with_a_restart(tmp_path: Path) -> None:
    async def write(store: Store) -> None:
        for i in range(3):
            await store.put("things", _obj(f"o{i}"))
        await store.delete("things", "n", "o2")

    async def read(store: Store) -> None:
        assert store.revision == 4
        with pytest.raises(Expired):
            store.watch("things", _everything, 3)
        watcher = store.watch("things", _everything, 4)
        record = await store.put("things", _obj("new"))
        assert record.revision == 5
        assert [change.type for change in await watcher.next_batch(1)] == ["ADDED"]

    _with_store(tmp_path, write)
    _with_store(tmp_path, read)


def test_a_watcher_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        lazy = store.watch("things", _everything, 0)
        for i in range(4):
            await store.put("things", _obj(f"o{i}"))
        assert lazy.closed
        assert store.watcher_count() == 0

    _with_store(tmp_path, scenario, watch_buffer=3)


def test_objects_enter_and_leave_a_selection(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        select = make_filter(lambda record: record.labels.get("on") == "yes", "n")
        watcher = store.watch("things", select, 0)
        for value in ("no", "yes", "yes2", "yes"):
            await store.put("things", _obj("a", on=value))
        await store.delete("things", "n", "a")
        other = _obj("b", on="yes")
        other["metadata"]["namespace"] = "elsewhere"
        await store.put("things", other)
        assert [change.type for change in await watcher.next_batch(1)] == ["ADDED", "DELETED", "ADDED", "DELETED"]

    _with_store(tmp_path, scenario)


def test_pages_of_a_list_show_one_moment(run: Any) -> None:
    async def scenario(client: Client) -> None:
        for name in "abcde":
            await client.send("POST", MAPS, config_map(name))
        first = await client.send("GET", MAPS, limit="2")
        await client.send("DELETE", f"{MAPS}/c")
        await client.send("POST", MAPS, config_map("aa"))
        second = await client.send("GET", MAPS, limit="3", **{"continue": first["metadata"]["continue"]})
        names = [item["metadata"]["name"] for item in first["items"] + second["items"]]
        assert names == ["a", "b", "c", "d", "e"]
        assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        last = await client.send("GET", MAPS, limit="3", **{"continue": second["metadata"]["continue"]})
        assert last["metadata"]["continue"] == ""

    run(scenario)
