"""The table of built-in kinds. A row declares a kind; defaults, rules and columns are looked up by its plural.

Columns of a row: group/version, kind, plural, scope (N namespaced, C cluster), short names, type in builtin_types.txt,
subresources, flags (`g` counts generations, `v` virtual: answered and never stored), field selectors.
"""

from __future__ import annotations

from virt_local.apiserver.builtins.columns import COLUMNS
from virt_local.apiserver.builtins.events import event_from_stored, event_to_stored
from virt_local.apiserver.kinds import FULL, Kind
from virt_local.apiserver.schema.builtin import builtin_node

_TABLE = """
v1 Namespace namespaces C ns V1Namespace status,finalize - status.phase
v1 Node nodes C no V1Node status - spec.unschedulable
v1 Pod pods N po V1Pod status,log,exec,attach,portforward,binding,eviction,resize g \
spec.nodeName,spec.restartPolicy,spec.schedulerName,spec.serviceAccountName,spec.hostNetwork,status.phase,status.podIP,\
status.nominatedNodeName
v1 Event events N ev CoreV1Event - - involvedObject.kind,involvedObject.namespace,involvedObject.name,\
involvedObject.uid,involvedObject.apiVersion,involvedObject.resourceVersion,involvedObject.fieldPath,reason,\
reportingComponent,type
v1 ConfigMap configmaps N cm V1ConfigMap - - -
v1 Secret secrets N - V1Secret - - type
v1 ServiceAccount serviceaccounts N sa V1ServiceAccount token - -
v1 Service services N svc V1Service status - spec.clusterIP,spec.type
v1 PersistentVolume persistentvolumes C pv V1PersistentVolume status - -
v1 PersistentVolumeClaim persistentvolumeclaims N pvc V1PersistentVolumeClaim status - -
events.k8s.io/v1 Event events N ev EventsV1Event - - regarding.kind,regarding.namespace,regarding.name,regarding.uid,\
reason,reportingController,type
discovery.k8s.io/v1 EndpointSlice endpointslices N - V1EndpointSlice - g -
storage.k8s.io/v1 StorageClass storageclasses C sc V1StorageClass - - -
coordination.k8s.io/v1 Lease leases N - V1Lease - - -
apps/v1 ControllerRevision controllerrevisions N - V1ControllerRevision - - -
policy/v1 PodDisruptionBudget poddisruptionbudgets N pdb V1PodDisruptionBudget status g -
networking.k8s.io/v1 NetworkPolicy networkpolicies N netpol V1NetworkPolicy - g -
v1 LimitRange limitranges N limits V1LimitRange - - -
v1 ResourceQuota resourcequotas N quota V1ResourceQuota status - -
scheduling.k8s.io/v1 PriorityClass priorityclasses C pc V1PriorityClass - g -
rbac.authorization.k8s.io/v1 Role roles N - V1Role - - -
rbac.authorization.k8s.io/v1 RoleBinding rolebindings N - V1RoleBinding - - -
rbac.authorization.k8s.io/v1 ClusterRole clusterroles C - V1ClusterRole - - -
rbac.authorization.k8s.io/v1 ClusterRoleBinding clusterrolebindings C - V1ClusterRoleBinding - - -
apiextensions.k8s.io/v1 CustomResourceDefinition customresourcedefinitions C crd,crds \
V1CustomResourceDefinition status g -
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration mutatingwebhookconfigurations C - \
V1MutatingWebhookConfiguration - g -
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration validatingwebhookconfigurations C - \
V1ValidatingWebhookConfiguration - g -
apiregistration.k8s.io/v1 APIService apiservices C - V1APIService status - -
authentication.k8s.io/v1 TokenReview tokenreviews C - V1TokenReview - v -
authentication.k8s.io/v1 SelfSubjectReview selfsubjectreviews C - V1SelfSubjectReview - v -
authorization.k8s.io/v1 SubjectAccessReview subjectaccessreviews C - V1SubjectAccessReview - v -
authorization.k8s.io/v1 SelfSubjectAccessReview selfsubjectaccessreviews C - V1SelfSubjectAccessReview - v -
authorization.k8s.io/v1 LocalSubjectAccessReview localsubjectaccessreviews N - V1LocalSubjectAccessReview - v -
authorization.k8s.io/v1 SelfSubjectRulesReview selfsubjectrulesreviews C - V1SelfSubjectRulesReview - v -
"""

_CATEGORIES = {"pods": ("all",), "services": ("all",), "customresourcedefinitions": ("api-extensions",)}
_EXTENSIONS = ("apiservices", "mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_CATEGORIES |= dict.fromkeys(_EXTENSIONS, ("api-extensions",))


def _list(text: str) -> tuple[str, ...]:
    return () if text == "-" else tuple(text.split(","))


def _verbs(plural: str, flags: str) -> tuple[str, ...]:
    if flags == "v":
        return ("create",)
    # Nobody empties a cluster by one request.
    return tuple(verb for verb in FULL if verb != "deletecollection") if plural == "namespaces" else FULL


def _kind(line: str) -> Kind:
    api_version, kind, plural, scope, short, type_name, subresources, flags, fields = line.split()
    group, _, version = api_version.rpartition("/")
    is_events_view = group == "events.k8s.io"
    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        namespaced=scope == "N",
        node=builtin_node(type_name),
        singular=kind.lower(),
        list_kind=f"{kind}List",
        short_names=_list(short),
        categories=_CATEGORIES.get(plural, ()),
        verbs=_verbs(plural, flags),
        subresources=_list(subresources),
        columns=COLUMNS.get(plural, ()),
        fields=_list(fields),
        type_name=type_name,
        has_generation=flags == "g",
        virtual=flags == "v",
        to_stored=event_to_stored if is_events_view else None,
        from_stored=event_from_stored if is_events_view else None,
    )


BUILTIN_KINDS = tuple(_kind(line) for line in _TABLE.strip().splitlines())


def field_paths() -> dict[str, tuple[str, ...]]:
    """The indexed fields of each stored resource, in their stored form."""
    return {kind.storage: kind.fields for kind in BUILTIN_KINDS if not kind.virtual and kind.is_stored_form}
