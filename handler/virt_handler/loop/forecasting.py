"""The forecast of a move that was asked for: made beside the loop while the target makes ready, once for each job."""

from __future__ import annotations

from dataclasses import dataclass

from virt_core.apis.migrationstate import MigrationConfiguration
from virt_core.apis.moveview import forecast_settings
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.workqueue import WorkQueue
from virt_core.rpc.status import RpcFailure
from virt_core.runtime.logs import get_logger
from virt_handler.decisions.moving import under_way
from virt_handler.loop.errands import Errands
from virt_handler.loop.sessions import Session
from virt_handler.service.forecasts import Forecasts
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Forecaster:
    forecasts: Forecasts
    errands: Errands
    queue: WorkQueue

    def follow(self, session: Session, vmi: VirtualMachineInstance) -> None:
        """Called at each look at a machine that runs here."""
        move = under_way(vmi)
        if move is None or session.launcher is None or not session.may_forecast(move.migration_uid):
            return
        ref = node_pb2.VMIRef(namespace=vmi.metadata.namespace, name=vmi.metadata.name, uid=vmi.metadata.uid)
        fields = forecast_settings(move.migration_configuration or MigrationConfiguration(), vmi)
        request = node_pb2.ForecastMoveRequest(vmi=ref, **fields)
        self.errands.start(session, "forecast", lambda: self._make(session, move.migration_uid, request))

    def _make(self, session: Session, job: str, request: node_pb2.ForecastMoveRequest) -> None:
        launcher = session.launcher
        if launcher is None:
            return
        try:
            found = self.forecasts.make(launcher, session.view().domain or launcher_pb2.Domain(), request)
        except RpcFailure as failure:
            log.info("no forecast of a move", vmi=session.key, error=str(failure))
            return
        session.foreseen(job, found)
        self.queue.add(session.key)
